"""Real users of this host: the one who runs the tests, and some that every host has."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

OTHERS = ("nobody", "daemon")


class User:
    """Runs programs as a user."""

    def __init__(self, name: str) -> None:
        entry = pwd.getpwnam(name)
        self.name, self.uid, self.gid = name, entry.pw_uid, entry.pw_gid

    @classmethod
    def own(cls) -> User:
        return cls(pwd.getpwuid(os.getuid()).pw_name)

    def words(self, *words: str) -> list[str]:
        """A command that runs as this user."""
        if self.uid == os.getuid():
            return list(words)
        if os.geteuid() != 0:
            pytest.fail("to act as several users, the tests of admission need root", pytrace=False)
        ids = (f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups")
        return [shutil.which("setpriv") or "setpriv", *ids, *words]

    def credential(self, socket: Path, payload: bytes, ttl: int = 60) -> str:
        """By munge's own program."""
        options = (f"--socket={socket}", f"--ttl={ttl}")
        done = subprocess.run(
            self.words("munge", *options), input=payload, capture_output=True, check=True
        )
        return done.stdout.decode().strip()
