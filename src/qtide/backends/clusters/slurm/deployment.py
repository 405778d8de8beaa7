"""Deploys the prolog, and job_submit.lua, to a folder that a cluster's hosts can read."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from urllib.parse import urlsplit

from qtide.backends.clusters.slurm.prolog import is_loopback
from qtide.core.errors import UsageError
from qtide.core.files import write_whole

OURS = Path(__file__).parent
SYSTEM_PYTHON = Path("/usr/bin/python3")
PLAIN = re.compile(r"[\w./:,@%+~\[\]-]*")
"""Characters that need no shell quotes, as a shell also reads the file."""


def deploy(folder: Path) -> Path:
    """Copy the prolog to a folder; return the program to set as TaskProlog in slurm.conf."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, mode in (("prolog.py", 0o644), ("prolog.sh", 0o755)):
        shutil.copyfile(OURS / name, folder / name)
        (folder / name).chmod(mode)
    script = (OURS / "job_submit.lua").read_text()
    script = script.replace("/etc/slurm/qtide", str(folder))  # where the service writes its file
    write_whole(folder / "job_submit.lua", script.encode(), 0o644)
    return folder / "prolog.sh"


SETTINGS = ("ca", "munge_socket", "socket", "auth", "scontrol", "sack")
"""What can be announced besides the service's URL; see `PrologSettings`."""


def announce(folder: Path, url: str, **settings: str) -> None:
    """Tell the prolog in `folder` where the service is, for jobs that start from now on.

    Keeps lines that an operator has added to the file.
    """
    for each in url.split(","):  # a service, and those that stand by
        if not re.match(r"https?://[^/]", each):
            raise UsageError(f"the service's URL begins with http:// or https://, not {each!r}")
        if each.startswith("http://") and not is_loopback(urlsplit(each).hostname or ""):
            raise UsageError(
                f"tokens would be sent to {each} unencrypted; give the service TLS: https"
            )
    entries = {"url": url} | dict.fromkeys(SETTINGS, "") | settings
    entries["python"] = _interpreter()
    for key, value in entries.items():
        if not PLAIN.fullmatch(value):
            raise UsageError(
                f"{key} = {value!r} has characters that a shell would need quotes for; avoid them"
            )
    file = folder / "service.conf"
    old = file.read_text().splitlines() if file.exists() else []
    lines = [f"{key}={value}" for key, value in entries.items() if value]
    lines += [line for line in old if line.partition("=")[0] not in entries]
    # atomically: a task may start at any moment
    write_whole(file, ("\n".join(lines) + "\n").encode())


def _interpreter() -> str:
    """A Python that every user of the node may run; ours may be in a home directory."""
    return str(SYSTEM_PYTHON if SYSTEM_PYTHON.exists() else sys.executable)
