"""QStone's Slurm generator on a box: its jobs run their circuits at the service.

QStone sends its circuits to a gateway, which a site has to write; the one below passes them to the
service. The box has one node, as all VQE jobs of QStone write the same file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from qtide import box
from qtide.backends.client.client import Client, RemoteTask

PYTHON = Path(sys.argv[1])
"""The interpreter that has QStone."""
JOBS = {"VQE": 3, "RB": 1}
"""Jobs of each application."""
LIMIT = 300.0
"""Seconds until all jobs have ended."""


class Gateway(BaseHTTPRequestHandler):
    """`POST /execute` submits a circuit, `GET /results` waits for its answer."""

    client = Client()
    tasks: dict[int, RemoteTask] = {}  # noqa: RUF012 - one for all requests

    def do_POST(self) -> None:
        form = self._form()
        task = self.client.submit(form["circuit"], "gate", shots=int(form["reps"]))
        self.tasks[form["pkt_id"]] = task
        self._answer({})

    def do_GET(self) -> None:
        [shots] = self.tasks[self._form()["pkt_id"]].result(60.0)
        counts = shots.counts()
        rows = [[int(bit) for bit in key] for key, often in counts.items() for _ in range(often)]
        self._answer({"counts": counts, "measurements": rows})

    def log_message(self, format: str, *words: Any) -> None:  # noqa: A002 - the library's name
        """Say nothing."""

    def _form(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, form: Any) -> None:
        body = json.dumps(form).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def configuration(port: int, application: str, jobs: int) -> dict[str, Any]:
    """What QStone generates jobs from: one user, one application."""
    there = {"ip_address": "127.0.0.1", "port": port}
    job = {"type": application, "qubits": [3], "num_shots": [100], "walltime": 3}
    return {
        "environment": {
            "project_name": "physics",
            "scheduling_mode": "NONE",
            "job_count": jobs,
            "qpu": {"mode": "REAL"},
            "connectivity": {"mode": "HTTPS", "qpu": there},
            "timeouts": {"http": 60, "lock": 60},
        },
        "jobs": [job | {"app_args": {"none": 0}, "app_logging_level": 0}],
        "users": [{"user": "ada", "computations": {application: 1.0}}],
    }


class Slurm(unittest.TestCase):
    """Each application of QStone that makes circuits which its own readers take."""

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.gateway = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
        threading.Thread(target=self.gateway.serve_forever, daemon=True).start()
        self.addCleanup(self.gateway.server_close)
        self.addCleanup(self.gateway.shutdown)
        box.up(self.folder / "box", nodes=1)
        self.addCleanup(box.down, self.folder / "box")
        self.environment = os.environ | box.env(self.folder / "box")
        self.environment["PATH"] = f"{PYTHON.parent}{os.pathsep}{self.environment['PATH']}"

    def test_jobs_run_their_circuits_at_the_service(self) -> None:
        for application, jobs in JOBS.items():
            with self.subTest(application):
                self._run(application, jobs)

    def _run(self, application: str, jobs: int) -> None:
        place = self.folder / application
        place.mkdir()
        form = configuration(self.gateway.server_address[1], application, jobs)
        (place / "qstone.json").write_text(json.dumps(form))
        before = len(Gateway.tasks)
        self._qstone(place, "generate", "-i", "qstone.json", "-o", ".", "-s", "slurm")
        [made] = place.glob("*.tar.gz")
        self._qstone(place, "run", "-i", made.name, "-o", ".")
        end = time.monotonic() + LIMIT
        while self._slurm("squeue", "--noheader") and time.monotonic() < end:
            time.sleep(1.0)
        states = self._slurm("scontrol", "--oneliner", "show", "jobs", "--all")
        errors = "".join(each.read_text() for each in place.rglob("err.*"))
        ran = len(Gateway.tasks) - before
        print(f"{application}: {jobs} jobs, {ran} circuits", flush=True)
        for sign in ("Traceback", "QSTONE::ERR", "srun: error"):
            self.assertNotIn(sign, errors)
        self.assertNotIn("JobState=FAILED", states)
        self.assertGreaterEqual(ran, jobs)
        states = "".join({task.refresh().state for task in Gateway.tasks.values()})
        self.assertEqual(states, "done")

    def _qstone(self, place: Path, *words: str) -> None:
        command = (str(PYTHON), "-m", "qstone", *words)
        done = subprocess.run(
            command, env=self.environment, cwd=place, capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def _slurm(self, *words: str) -> str:
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, check=True
        )
        return done.stdout


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
