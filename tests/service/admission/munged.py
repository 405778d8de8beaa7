"""A munge daemon for a test."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qtide.box.release import Release
from tests.backends.slurm.stage import until


class Munged:
    """It has a folder that all users may read."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.socket = folder / "socket"
        self.process = process

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[Munged]:
        folder = Path(tempfile.mkdtemp(prefix="qtide-munge-"))
        folder.chmod(0o755)
        key = folder / "key"
        key.write_bytes(secrets.token_bytes(64))
        key.chmod(0o400)
        daemon = cls(folder, subprocess.Popen(_words(folder), stderr=subprocess.DEVNULL))
        try:
            assert until(daemon.socket.exists)
            yield daemon
        finally:
            daemon.process.kill()
            daemon.process.wait()
            shutil.rmtree(folder)


def _words(folder: Path) -> list[str]:
    places = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed"}
    paths = [f"--{option}={folder / name}" for option, name in places.items()]
    return [
        Release().program("munged"),
        "--force",
        "--foreground",
        *paths,
        f"--log-file={os.devnull}",
    ]
