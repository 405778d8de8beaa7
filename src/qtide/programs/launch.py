"""Starts one MPI program on several nodes, from the agents that are there already.

The leader, the task's first node, starts the MPI's own launcher (MPICH's, Intel's or Open MPI's
mpiexec, or srun). Such a launcher starts a process on each other node by `ssh`; here a script takes
the place of ssh, and lets the follower, the agent of that node, start the process. So it needs no
ssh, the nodes may belong to different Slurm jobs, and what ends a node's agent ends the processes
there.

If a node is lost, the leader ends the program and raises NodeLost, so that the task runs again.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from tempfile import mkdtemp
from threading import Event, Thread
from typing import Any

from qtide.core.errors import CommandFailed, NodeLost
from qtide.core.job import CommandSettings
from qtide.core.processes import kill_below
from qtide.programs.command import Command

MEET_LIMIT = 60.0
"""Seconds in which all nodes of an attempt must have met."""
LEAVE_LIMIT = 90.0
"""Seconds to wait for a follower's last word; longer than a driver takes to miss its node."""
POLL = 0.01
"""Seconds between two looks for what has been asked for."""
VERSION_LIMIT = 30.0
"""Seconds in which a launcher must say what it is."""

SHELL = """#!/bin/sh
# An MPI launcher calls this as it would call ssh: [-x] HOST COMMAND...
while :; do case "$1" in -*) shift ;; *) break ;; esac; done
host=$1
shift
[ "$host" = node0 ] && exec /bin/sh -c "$*"
cd {folder} || exit 1
printf '%s' "$*" > "$host.new" && mv "$host.new" "$host.ask" || exit 1
while [ ! -e "$host.end" ]; do [ -d {folder} ] || exit 1; sleep 0.05; done
"""


class Leader:
    """The first node's end of the connections to the others."""

    def __init__(self, meeting: Path, nodes: int) -> None:
        self._meeting = meeting
        self._nodes = nodes
        self._followers: dict[int, Connection[Any, Any]] = {}
        self._slurm: dict[int, tuple[str, str]] = {0: _slurm_place()}
        self._computers = {_computer()}
        self._lost: list[int] = []
        self._left: dict[int, Event] = {}
        self.folder = Path(mkdtemp(prefix="qtide-launch-"))
        """A folder of this host for the script that stands in for ssh."""
        self.environment: dict[str, str] = {}

    def __enter__(self) -> Leader:
        try:
            self._meet()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._followers.values():
            with suppress(OSError):
                connection.send(("over",))
        for rank, left in self._left.items():
            if rank not in self._lost:
                left.wait(MEET_LIMIT)
        for connection in self._followers.values():
            connection.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def slurm_job(self) -> str | None:
        """The Slurm job of all nodes; None if they have none, or not the same."""
        jobs = {job for job, _ in self._slurm.values()}
        return jobs.pop() if len(jobs) == 1 and "" not in jobs else None

    @property
    def on_one_computer(self) -> bool:
        """Whether all nodes are processes of one computer."""
        return len(self._computers) == 1

    @property
    def slurm_nodes(self) -> str:
        """Slurm's names of the nodes."""
        return ",".join(node for _, node in sorted(self._slurm.values()))

    def dismiss(self) -> None:
        """Let the followers go; raise NodeLost if one of them is gone."""
        for connection in self._followers.values():
            with suppress(OSError):
                connection.send(("over",))
        for rank, left in self._left.items():
            if not left.wait(LEAVE_LIMIT) or rank in self._lost:
                raise NodeLost(f"node {rank} of an MPI program was lost")

    @contextmanager
    def watching(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Let followers start what the launcher asks for; end it if one of them is lost."""
        for rank, connection in self._followers.items():
            self._left[rank] = Event()
            Thread(target=self._hear, args=(rank, connection, process), daemon=True).start()
        over = Event()
        asking = Thread(target=self._ask, args=(over,), daemon=True)
        asking.start()
        try:
            yield
        finally:
            over.set()
            asking.join()

    def _meet(self) -> None:
        """Publish where this node is, and wait for the others."""
        key = os.urandom(16)
        with Listener((_address(), 0), backlog=self._nodes, authkey=key) as listener:
            # the listener has no limit of its own
            listener._listener._socket.settimeout(MEET_LIMIT)  # type: ignore[attr-defined]
            _, port = listener.address
            self._meeting.parent.mkdir(parents=True, exist_ok=True)
            draft = self._meeting.with_suffix(".new")
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT, 0o600), "w") as opened:
                opened.write(f"{_address()} {port} {key.hex()}")
            draft.replace(self._meeting)
            try:
                while len(self._followers) < self._nodes - 1:
                    connection = listener.accept()
                    rank, place, computer = connection.recv()
                    self._followers[rank], self._slurm[rank] = connection, place
                    self._computers.add(computer)
            except (OSError, EOFError):
                raise NodeLost("not all nodes of an MPI program have met") from None
            finally:
                self._meeting.unlink(missing_ok=True)

    def _hear(
        self, rank: int, connection: Connection[Any, Any], process: subprocess.Popen[bytes]
    ) -> None:
        """Listen to a follower until it leaves or is lost."""
        try:
            while connection.recv() != "left":
                (self.folder / f"node{rank}.end").touch()
        except (OSError, EOFError):
            self._lost.append(rank)
            kill_below(process.pid)
            process.kill()
        self._left[rank].set()

    def _ask(self, over: Event) -> None:
        """Pass what the launcher wants to start on other nodes to their agents."""
        waiting = dict(self._followers)
        while waiting and not over.wait(POLL):
            for rank, connection in list(waiting.items()):
                file = self.folder / f"node{rank}.ask"
                if file.exists():
                    del waiting[rank]
                    with suppress(OSError):  # its loss is seen elsewhere
                        connection.send(("start", file.read_text(), self.environment))


def follow(meeting: Path, rank: int) -> None:
    """Start what the leader asks for, until it says that the program is over."""
    last = time.monotonic() + MEET_LIMIT
    while not meeting.exists():
        if time.monotonic() > last:
            raise NodeLost("not all nodes of an MPI program have met")
        time.sleep(POLL)
    process: subprocess.Popen[bytes] | None = None
    try:
        host, port, key = meeting.read_text().split()
        with Client((host, int(port)), authkey=bytes.fromhex(key)) as leader:
            leader.send((rank, _slurm_place(), _computer()))
            while (message := leader.recv())[0] != "over":
                _, text, environment = message
                process = subprocess.Popen(
                    ["/bin/sh", "-c", text], stdin=subprocess.DEVNULL, env=environment
                )
                Thread(target=_tell_end, args=(process, leader), daemon=True).start()
            if process is not None:
                _end(process)
            leader.send("left")
    except (OSError, EOFError, ValueError):
        raise NodeLost("the first node of an MPI program was lost") from None
    finally:
        if process is not None:
            _end(process)


def _tell_end(process: subprocess.Popen[bytes], leader: Connection[Any, Any]) -> None:
    process.wait()
    with suppress(OSError):  # the program is over
        leader.send("ended")


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.5)  # the launcher's process ends by itself
    kill_below(process.pid)
    process.kill()
    process.wait()


OF_SITE = ("SLURM_CONF", "SLURM_SACK_SOCKET")
"""Variables of Slurm that are the site's; srun may not see the others, which are the job's."""


def launched(
    words: Sequence[str],
    environment: Mapping[str, str],
    command: Command,
    settings: CommandSettings,
    leader: Leader | None,
) -> tuple[list[str], dict[str, str]]:
    """The words and the environment that start an MPI program on all nodes of the leader."""
    named, *terms = shlex.split(settings.launcher) or [""]
    launcher = [_found(named, environment), *terms]
    plain = {name: text for name, text in environment.items() if not name.startswith("SLURM_")}
    if Path(launcher[0]).name == "srun":
        site = {name: environment[name] for name in OF_SITE if name in environment}
        return _by_srun(launcher, words, command, leader), plain | site
    ranks = ["-n", str(command.ranks)]
    open_mpi = _is_open_mpi(launcher[0], tuple(plain.items()))
    if open_mpi:
        ranks += ["--bind-to", "none"]  # several nodes may be one computer, with fewer cores
        if leader is None or leader.on_one_computer:
            # it refuses two nodes with one host name; a lost one still ends the program
            ranks += ["--host", f"localhost:{command.ranks}"]
            return [*launcher, *ranks, *words], plain | _for_root()
    if leader is None:
        return [*launcher, *ranks, *words], plain
    script = leader.folder / "shell"
    script.write_text(SHELL.format(folder=leader.folder))
    script.chmod(0o700)
    hosts = ",".join(f"node{rank}:{command.ranks_per_node}" for rank in range(command.nodes))
    leader.environment = plain | _for_root() | _instead_of_ssh(str(script))
    where = ["--host" if open_mpi else "-hosts", hosts]
    return [*launcher, *where, *ranks, *words], leader.environment


def _instead_of_ssh(script: str) -> dict[str, str]:
    """Variables by which launchers start the script in place of ssh."""
    return {
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": script,
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": script,
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_plm_rsh_agent": script,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "PRTE_MCA_plm": "ssh",
        "PRTE_MCA_plm_ssh_agent": script,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
    }


def _for_root() -> dict[str, str]:
    """Variables without which Open MPI refuses to start for root, as in a container."""
    if os.geteuid():
        return {}
    names = [f"{who}_ALLOW_RUN_AS_ROOT" for who in ("OMPI", "PRTE")]
    return dict.fromkeys([*names, *(f"{name}_CONFIRM" for name in names)], "1")


def _by_srun(
    launcher: list[str], words: Sequence[str], command: Command, leader: Leader | None
) -> list[str]:
    job, node = _slurm_place()
    if leader is not None:
        job, node = leader.slurm_job or "", leader.slurm_nodes
    if not job:
        raise CommandFailed(
            "srun can start an MPI program only on nodes of one Slurm job, and these are not; use "
            "mpiexec as the launcher, or --strategy static"
        )
    terms = [f"--jobid={job}", f"--nodelist={node}", f"--nodes={command.nodes}"]
    terms += [f"--ntasks={command.ranks}", f"--ntasks-per-node={command.ranks_per_node}"]
    return [*launcher, *terms, "--overlap", "--kill-on-bad-exit=1", *words]


def _found(named: str, environment: Mapping[str, str]) -> str:
    """The launcher of that name, or any if none is named; the one beside this Python comes last."""
    if os.sep in named:
        return named
    path = environment.get("PATH", "")
    for place in (path, str(Path(sys.executable).parent)):
        for name in [named] if named else ["mpiexec", "mpirun"]:
            if found := shutil.which(name, path=place):
                return found
    if not named and (found := shutil.which("srun", path=path)):
        return found
    raise CommandFailed(
        f"there is no launcher {named or 'mpiexec'} on {socket.gethostname()}: install an MPI, "
        "load its module, or name another launcher with --launcher"
    )


@lru_cache(maxsize=8)
def _is_open_mpi(launcher: str, environment: tuple[tuple[str, str], ...]) -> bool:
    try:
        done = subprocess.run(
            [launcher, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=dict(environment),  # it may find its own libraries only by what a module has set
            timeout=VERSION_LIMIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandFailed(f"the launcher {launcher} cannot be started: {error}") from None
    said = done.stdout + done.stderr
    return any(name in said for name in ("Open MPI", "OpenRTE", "PRRTE", "prte"))


def _address() -> str:
    """The address by which other nodes reach this host."""
    with suppress(OSError):
        return socket.gethostbyname(socket.gethostname())
    return "127.0.0.1"


def _computer() -> str:
    """What only processes of the same computer have in common."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text() + socket.gethostname()
    return socket.gethostname()


def _slurm_place() -> tuple[str, str]:
    """The Slurm job and node of this process; empty outside Slurm."""
    return os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURMD_NODENAME", "")
