"""Slurm's commands as a text interface: explicit formats, no shell, a time limit on every call."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from qtide.core.errors import QtideError

LIMIT = 30.0
"""Seconds that a command may take."""

OTHERS = ("SLURM", "SLURMD_", "SALLOC_", "SBATCH_", "SRUN_", "SQUEUE_", "PMI_", "PMIX_", "PMI2_")
"""Prefixes of variables by which an enclosing job or user settings would affect a command."""

CLIENTS = "clients.conf"
"""A file beside slurm.conf: `bin=FOLDER` names the folder of the commands that fit that Slurm, if
others are installed; other lines are variables for them, such as SLURM_SACK_SOCKET."""

MUNGE_SOCKET = re.compile(r"^\s*AuthInfo\s*=.*?\bsocket=([^\s,]+)", re.MULTILINE | re.IGNORECASE)
"""Matches the socket of munged in slurm.conf."""


class SlurmFailed(QtideError):  # noqa: N818 - named after the event
    """A Slurm command failed."""


def environment(conf: Path | None = None) -> dict[str, str]:
    """Our environment without an enclosing job's; `conf` or SLURM_CONF names the cluster."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(OTHERS)}
    named = str(conf) if conf else os.environ.get("SLURM_CONF")
    times = {"SLURM_TIME_FORMAT": "%s"}  # seconds since 1970, independent of time zones
    if named is None:
        return kept | times
    return kept | times | {"SLURM_CONF": named} | clients(Path(named), kept.get("PATH"))


def clients(conf: Path, path: str | None = None) -> dict[str, str]:
    """Variables for the commands of a Slurm that are not the ones in PATH: see CLIENTS."""
    try:
        lines = conf.with_name(CLIENTS).read_text().splitlines()
    except OSError:
        return {}
    found = {key: value for key, _, value in (line.partition("=") for line in lines)}
    if folder := found.pop("bin", ""):
        rest = (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep)
        found["PATH"] = os.pathsep.join([folder, *(each for each in rest if each != folder)])
    return found


class Slurm:
    """Runs commands for the cluster that the environment names."""

    def __init__(self, conf: Path | None = None, extra: Mapping[str, str] | None = None) -> None:
        self.environment = environment(conf) | dict(extra or {})

    def check(self) -> None:
        """Reject a missing configuration, for which Slurm's commands would search a long time."""
        conf = self.environment.get("SLURM_CONF")
        if conf is not None and not Path(conf).is_file():
            raise SlurmFailed(f"SLURM_CONF names {conf}, which does not exist; is the box up?")

    async def output(self, *words: str, limit: float = LIMIT) -> str:
        """Run a command and return its stdout; raise SlurmFailed with its message if it fails."""
        code, out, err = await self.run(*words, limit=limit)
        if code:
            raise SlurmFailed(f"{words[0]} failed: {reason(err)}")
        return out

    async def run(self, *words: str, limit: float = LIMIT) -> tuple[int | None, str, str]:
        """Run a command and return its exit code, stdout and stderr."""
        process = await self.start(*words, stdin=asyncio.subprocess.DEVNULL)
        try:
            out, err = await asyncio.wait_for(process.communicate(), limit)
        except TimeoutError:
            raise SlurmFailed(f"{words[0]} gave no answer within {limit:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")

    async def hostnames(self, names: str) -> list[str]:
        """Expand a Slurm node list, such as c[1-3]."""
        if "[" not in names:  # saves a command of 10 ms
            return [name for name in names.split(",") if name]
        return (await self.output("scontrol", "show", "hostnames", names)).split()

    async def start(
        self, *words: str, stdin: int, stderr: int | IO[bytes] | None = asyncio.subprocess.PIPE
    ) -> asyncio.subprocess.Process:
        """Start a command in its own session, so that Ctrl-C reaches only us."""
        try:
            return await asyncio.create_subprocess_exec(
                *words,
                stdin=stdin,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env=self.environment,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise SlurmFailed(
                f"there is no {words[0]} here; install Slurm's client commands, "
                "or start a box: qtide box up"
            ) from None


UNCONFIGURED = ("resolve_ctls_from_dns_srv", "Could not establish a configuration source")
"""What Slurm's commands say where there is no slurm.conf."""


def reason(text: str) -> str:
    """The reason why a command failed: the first error in its stderr, without the command name."""
    if any(words in text for words in UNCONFIGURED):
        return "Slurm's configuration is not here; set SLURM_CONF, or start a box: qtide box up"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line or "fatal:" in line]
    line = (errors or lines or ["it gave no reason"])[0]
    return line.partition("error: ")[2] or line.partition("fatal: ")[2] or line


ENFORCED = re.compile(r"^AccountingStorageEnforce\s*=\s*(\S+)", re.MULTILINE)
IMPLYING = {"associations", "limits", "qos", "safe", "all", "1", "2"}
"""Settings that make Slurm refuse jobs with an account that is not the user's."""


async def default_account(slurm: Slurm, user: str, limit: float = LIMIT) -> str:
    """The default account that Slurm's associations have for a user; empty if there is none."""
    words = ("sacctmgr", "--noheader", "--parsable2", "show", "user", f"name={user}")
    found = await slurm.output(*words, "format=DefaultAccount", limit=limit)
    return found.strip()


async def accounts_are_checked(slurm: Slurm, limit: float = LIMIT) -> bool:
    """Whether Slurm refuses jobs with an account that is not the user's."""
    found = ENFORCED.search(await slurm.output("scontrol", "show", "config", limit=limit))
    return found is not None and bool(IMPLYING & set(found[1].lower().split(",")))


def munge_socket_of(slurm: Slurm) -> Path | None:
    """The socket of the munged that Slurm uses; None if it uses munge's default."""
    conf = slurm.environment.get("SLURM_CONF")
    found = MUNGE_SOCKET.search(Path(conf).read_text()) if conf else None
    return Path(found[1]) if found else None
