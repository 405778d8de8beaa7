"""A process manager for one process, inside that process.

MPICH gives every process that no manager started the same world, so that two of them cannot be
connected. A manager of our own gives each a world with a name of its own, needs no daemon, and
works the same on every cluster. It speaks the first version of PMI's wire protocol.
"""

from __future__ import annotations

import os
import socket
import threading

ANSWERS = {
    "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
    "get_maxes": "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0",
    "get_appnum": "cmd=appnum appnum=0 rc=0",
    "get_universe_size": "cmd=universe_size size=1 rc=0",
    "barrier_in": "cmd=barrier_out rc=0",
    "put": "cmd=put_result rc=0",
    "get": "cmd=get_result rc=-1 msg=unknown",  # no one else could have put it
}
LAST = "cmd=finalize_ack rc=0"


class Manager:
    """Answers what the MPI library of this process asks while it begins and ends."""

    def __init__(self) -> None:
        self._own, theirs = socket.socketpair()
        self._name = f"qtide_{os.urandom(8).hex()}"
        os.environ |= {"PMI_FD": str(theirs.detach()), "PMI_RANK": "0", "PMI_SIZE": "1"}
        threading.Thread(target=self._serve, daemon=True, name="pmi").start()

    def dismiss(self) -> None:
        """Answer the last question in advance: it is asked when Python has already ended."""
        self._own.sendall(f"{LAST}\n".encode())

    @staticmethod
    def forget() -> None:
        """Take our variables away, so that a child process does not believe to be managed."""
        for name in ("PMI_FD", "PMI_RANK", "PMI_SIZE"):
            os.environ.pop(name, None)

    def _serve(self) -> None:
        with self._own.makefile("r", encoding="ascii", newline="\n") as questions:
            for line in questions:
                self._own.sendall(f"{self._answer(line)}\n".encode())

    def _answer(self, line: str) -> str:
        command = dict(word.partition("=")[::2] for word in line.split()).get("cmd", "")
        if command == "get_my_kvsname":
            return f"cmd=my_kvsname kvsname={self._name} rc=0"
        return ANSWERS.get(command, "cmd=error rc=-1")
