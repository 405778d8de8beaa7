"""A reader who follows a page, with one folder, one home, one shell and one Python."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from qtide.core.sockets import free_ports
from tests.docs.blocks import Block, missing

ROOT = Path(__file__).parents[2]
SESSION = Path(__file__).with_name("session.py")
LIMIT = 900.0
"""Seconds after which a block has hung: on a quiet machine, none takes a tenth of it."""
GRACE = 10.0
"""Seconds for what a page left in the background to end."""
SHORTER = re.compile(r"(qtide .*\bsynthetic published\b.*--time-scale 0\.0)(1\b)")
"""Pretended work is one round here, and ten times faster than for readers."""
PRELUDE = f"""
set -eo pipefail
pip() {{ :; }}   # what it would install is installed
sudo() {{ :; }}  # packages are installed by the fixtures
python_block() {{
  [ -n "${{SESSION_PID:-}}" ] || coproc SESSION {{ exec python '{SESSION}'; }}
  echo "$1 $2" >&"${{SESSION[1]}}"
  read -r status <&"${{SESSION[0]}}"
  [ "$status" = 0 ]
}}
"""


class Reader:
    """Runs blocks in `folder`, which is also the home; ends what they left behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.here = folder / "here"
        self.here.mkdir()
        for entry in ROOT.iterdir():
            if not entry.name.startswith("."):
                (self.here / entry.name).symlink_to(entry)
        (self._port,) = free_ports(1)
        settings = folder / ".config" / "qtide" / "qtide.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(f'[serve]\nlisten = "127.0.0.1:{self._port}"\n')
        self._number = 0
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            cwd=self.here,
            env=self._environment(),
            start_new_session=True,
            text=True,
        )
        self._say(PRELUDE)

    def follow(self, block: Block) -> str | None:
        """Do what a block says; what went wrong, in words, if anything did."""
        if name := block.remark("file"):
            (self.here / name).unlink(missing_ok=True)
            (self.here / name).write_text(self._here(block.text))
            return None
        wrong, printed = self._run(block.language, self._here(block.text))
        if wrong:
            return f"{block.place} {wrong}; it printed:\n{printed}"
        if block.shown and (line := missing(self._here(block.shown.text), printed)) is not None:
            return (
                f"{block.shown.place} shows what {block.place} does not print there:\n"
                f"{line}\nIt printed:\n{printed}"
            )
        return None

    def end(self) -> None:
        """End the shell and all that it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._shell.pid, number)
            except ProcessLookupError:
                break
            self._await_end()
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait(GRACE)

    def _await_end(self) -> None:
        end = time.monotonic() + GRACE
        while time.monotonic() < end:
            self._shell.poll()
            try:
                os.killpg(self._shell.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.02)

    def _run(self, language: str, text: str) -> tuple[str, str]:
        """What went wrong, and what was printed."""
        self._number += 1
        code, printed, done = (self.folder / f"{self._number}.{s}" for s in (language, "out", "ok"))
        code.write_text(text)
        printed.touch()
        words = f"source {code}" if language == "sh" else f"python_block {code} {printed}"
        self._say(f"{{ {words}; }} >{printed} 2>&1 </dev/null\ntouch {done}\n")
        end = time.monotonic() + LIMIT
        while not done.exists():
            if self._shell.poll() is not None:
                return f"failed with code {self._shell.returncode}", printed.read_text()
            if time.monotonic() > end:
                return f"did not end within {LIMIT:g} s", printed.read_text()
            time.sleep(0.01)
        return "", printed.read_text()

    def _say(self, words: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(words)
        self._shell.stdin.flush()

    def _here(self, text: str) -> str:
        """The text with this reader's own port, and a faster clock."""
        text = SHORTER.sub(r"\g<1>0\2 --iterations 1", text)
        return text.replace("127.0.0.1:8037", f"127.0.0.1:{self._port}")

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("QTIDE_", "XDG_", "SLURM_", "PYTEST_", "IQM_"))
        }
        path = f"{Path(sys.executable).parent}:{kept['PATH']}"
        return kept | {"HOME": str(self.folder), "PATH": path, "COLUMNS": "80"}
