"""The helper beside rank 0 of a compiled MPI program: it decides, requests nodes and keeps the run.

The C library starts it with a socket as standard input, writes one line about the program to it,
and reads one line with the root's invitation from it. From then on every rank, including the root,
is a member that speaks the control protocol. When standard input ends, the root is gone. Standard
output is the program's own: newcomers of this machine print there.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qtide.backends.payloads.payload import Burst
from qtide.core.errors import QtideError, UsageError
from qtide.mpi.broker import ProgramStart, RootRecord
from qtide.mpi.checkpoint import Checkpoint
from qtide.mpi.control import NodesLost
from qtide.mpi.control_line import Message
from qtide.mpi.decisions import RootDecisions
from qtide.mpi.launcher import Launcher
from qtide.mpi.sizing import ByEfficiency, ByPhase, ByQuantumEnd, ByQueue, Sizes

ROOT = 0


def main() -> None:
    """Serve one program; with the argument `founder`, only print a founder's invitation."""
    launcher = Launcher.of_this_process()
    if sys.argv[1:] == ["founder"]:
        assert launcher is not None
        _say({"invitation": launcher.invitation()})
        return
    try:
        os.environ.setdefault("UCX_LOG_LEVEL", "error")  # newcomers would warn about lost nodes
        helper = Helper(json.loads(sys.stdin.readline()), launcher)
    except QtideError as error:
        _say({"refused": str(error)})
        return
    helper.serve()


def _say(message: Message) -> None:
    """Write a line to the C library, which reads no further ones."""
    os.write(sys.stdin.fileno(), json.dumps(message, ensure_ascii=False).encode() + b"\n")


class Helper:
    """Answers the requests of one program's ranks; most of them come from the root."""

    def __init__(self, terms: Message, launcher: Launcher | None) -> None:
        words, start = terms["program"], terms["start"]
        sizes = Sizes(*terms["sizes"])
        if launcher is not None and launcher.size > sizes.most:
            raise UsageError(
                f"the job was started with {launcher.size} processes, but has {sizes.most} at "
                "most; start fewer, or give qtide_init() more"
            )
        record = RootRecord(
            Path(os.environ.get("QTIDE_RUNS") or Path(start, "qtide-runs")).absolute(),
            Path(words[0]).name,
            os.environ.get("QTIDE_CLUSTER", "local"),
            sizes.most,
            ProgramStart(
                words, lambda: ["env", f"--chdir={start}", terms["executable"], *words[1:]]
            ),
            resume=os.environ.get("QTIDE_RESUME", "1") != "0",
        )
        self._decisions = RootDecisions(record, sizes)
        self._checkpoint = record.interrupted
        self._phase = ByPhase()
        self._quantum_end = 0.0
        self._ended = threading.Event()
        self._of_any_rank = QpuDesk().requests
        record.server.asked = self._asked
        self._begin(record, launcher)

    def _begin(self, record: RootRecord, launcher: Launcher | None) -> None:
        arrived = threading.Event()
        invitation = record.server.expect(ROOT, 0, arrived.set)
        size = 1 if launcher is None else launcher.size
        if launcher is not None and size > 1:
            record.founded(launcher.meet(record.server))
            self._decisions.size = size
        before = str(self._checkpoint.path) if self._checkpoint else ""
        _say({"invitation": invitation, "size": size, "checkpoint": before})

    def serve(self) -> None:
        """Serve until the program ends or its root is gone."""
        threading.Thread(target=self._watch_root, daemon=True, name="root").start()
        self._ended.wait()

    def _watch_root(self) -> None:
        """End with the root, also if the run cannot be closed: its folder may be gone, too."""
        try:
            sys.stdin.read()
            if not self._ended.is_set():
                self._decisions.cancel()
                self._decisions.record.close(QtideError("the root of the job is gone"))
        finally:
            self._ended.set()

    def _asked(self, member: int, message: Message) -> None:
        """Answer a request; what any rank may ask for waits in a thread of its own."""
        what = message["ask"]
        if handler := self._of_any_rank.get(what):
            threading.Thread(
                target=self._reply, args=(member, message, handler), daemon=True
            ).start()
        elif member == ROOT and isinstance(what, str) and hasattr(self, f"_on_{what}"):
            self._reply(member, message, getattr(self, f"_on_{what}"))
        if what == "finish":
            self._ended.set()

    def _reply(self, member: int, message: Message, handler: Callable[[Message], Message]) -> None:
        try:
            answer = handler(message)
        except NodesLost:
            answer = {}  # the root knows by itself which members are lost
        except Exception as error:  # whatever a service or a policy raises, the root is told
            answer = {"error": f"{error}" or type(error).__name__}
        self._decisions.record.server.send([member], {"answer": message.get("ticket")} | answer)

    def _on_grow(self, message: Message) -> Message:
        """Request nodes, and say which newcomers join."""
        server, members = self._decisions.record.server, message["members"]
        return self._decisions.grow(
            message["to"] or None,
            message["least"] or None,
            message["wait"],
            lambda: server.check(members),  # this thread would hear that the root has noticed
        )

    def _on_check(self, _: Message) -> Message:
        return self._decisions.consult(self._decisions)

    def _on_cancel(self, _: Message) -> Message:
        self._decisions.cancel()
        return {}

    def _on_join(self, message: Message) -> Message:
        """Send newcomers the ports at which the root accepts them."""
        order = {key: message[key] for key in ("join", "change", "members", "new", "site")}
        self._decisions.record.server.send(message["new"], order)
        return {}

    def _on_decide(self, message: Message) -> Message:
        """Wait for all reports on a change; the verdict goes to all members."""
        change, members, leaving = message["change"], message["members"], message["leaving"]
        self._decisions.record.server.decide(change, members, leaving)
        return {}

    def _on_regroup(self, message: Message) -> Message:
        """Tell all members that are left who they are."""
        server = self._decisions.record.server
        left = [each for each in message["members"] if each not in server.lost]
        server.send(left, {"regroup": message["change"], "members": left})
        return {}

    def _on_changed(self, message: Message) -> Message:
        """Record a change of size."""
        new, left = message["new"], message["left"]
        self._decisions.changed(new, left, message["parts"], message["total"])
        return {}

    def _on_lost(self, message: Message) -> Message:
        self._decisions.lost(message["members"])
        return {}

    def _on_save(self, _: Message) -> Message:
        """Say where the next checkpoint goes."""
        last = self._checkpoint.version if self._checkpoint else 0
        path = Checkpoint(self._decisions.record.checkpoints, last + 1).path
        path.mkdir(parents=True, exist_ok=True)
        return {"path": str(path)}

    def _on_saved(self, message: Message) -> Message:
        """Remove the checkpoint before the one that is now complete."""
        before, path = self._checkpoint, Path(message["path"])
        self._checkpoint = Checkpoint(path.parent, int(path.name))
        if before is not None:
            before.remove()
        return {}

    def _on_policy(self, message: Message) -> Message:
        """Choose the policy that `check` consults."""
        policies: dict[str, Callable[[Any], int | None]] = {
            "phase": self._phase,
            "queue": ByQueue(),
            "efficiency": ByEfficiency(),
            "quantum-end": ByQuantumEnd(lambda: self._quantum_end - time.monotonic()),
        }
        name = message["name"]
        if name not in policies:
            raise UsageError(f"there is no policy {name!r}; there are: {', '.join(policies)}")
        self._decisions.policy = policies[name]
        return {}

    def _on_phase(self, message: Message) -> Message:
        """Note the program's phase, and when a quantum one is expected to end."""
        self._phase.phase = message["name"]
        self._quantum_end = time.monotonic() + message["seconds"]
        return {}

    def _on_finish(self, _: Message) -> Message:
        """End the run."""
        self._decisions.cancel()
        server = self._decisions.record.server
        server.let_leave(ROOT)
        self._decisions.record.close(None)
        return {}


class QpuDesk:
    """Tasks at a vQPU service for ranks that cannot call it themselves, as lines of text.

    A payload is an OpenQASM 3 program (`qasm`), lines of two variables and a weight (`qubo`,
    `ising`), or a number of seconds (`burst`). An answer has a line for each sample (energy, how
    often, values) or bit string (bits, how often).
    """

    def __init__(self) -> None:
        self.requests = {
            "submit": self._submit,
            "poll": lambda message: {"state": self._task(message).state},
            "fetch": self._fetch,
            "withdraw": lambda message: {"state": self._task(message).cancel().state},
        }

    def _submit(self, message: Message) -> Message:
        from qtide.backends.client.handle import qpu

        payload = _payload(message["format"], message["data"])
        shots = message["shots"] or None
        return {"task": qpu(message["device"] or None).submit(payload, shots=shots).id}

    def _fetch(self, message: Message) -> Message:
        try:
            return {"text": _lines(self._task(message).result(message["wait"]))}
        except TimeoutError:
            return {"text": None}

    def _task(self, message: Message) -> Any:
        from qtide.backends.client.client import Client  # only programs with a QPU need it

        return Client().task(message["task"])


def _payload(form: str, text: str) -> Any:
    if form == "qasm":
        return text
    if form == "burst":
        try:
            return Burst(float(text))
        except ValueError:
            raise UsageError(f"a burst is a number of seconds, not {text!r}") from None
    if form not in ("qubo", "ising"):
        raise UsageError(f"there is no format {form!r}; there are: qasm, qubo, ising, burst")
    import dimod  # slow to import

    model = dimod.BinaryQuadraticModel("BINARY" if form == "qubo" else "SPIN")
    for number, line in enumerate(text.splitlines(), 1):
        try:
            first, second, amount = line.split()
            one, other, weight = int(first), int(second), float(amount)
        except ValueError:
            raise UsageError(
                f"line {number} of the {form} is not two variables and a weight: {line!r}"
            ) from None
        model.add_variable(one)
        if one == other:
            model.add_linear(one, weight)
        else:
            model.add_quadratic(one, other, weight)
    return model


def _lines(answer: Any) -> str:
    if isinstance(answer, list):  # shots of circuits, one circuit after another
        rows = [f"{bits} {times}" for each in answer for bits, times in each.counts().items()]
    elif hasattr(answer, "record"):
        order = sorted(answer.variables)
        rows = [
            " ".join(
                [f"{each.energy:.17g} {each.num_occurrences}"]
                + [str(each.sample[name]) for name in order]
            )
            for each in answer.data(["sample", "energy", "num_occurrences"])
        ]
    else:
        rows = [json.dumps(answer)]
    return "".join(f"{row}\n" for row in rows)


if __name__ == "__main__":
    main()
