"""The daemons of a box: their start and their processes."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from qtide.backends.client.access import here
from qtide.backends.clusters.slurm.commands import CLIENTS as CLIENTS_FILE
from qtide.backends.clusters.slurm.commands import environment
from qtide.backends.clusters.slurm.deployment import announce, deploy
from qtide.box.layout import BoxLayout, BoxPlan
from qtide.box.release import Release
from qtide.box.settings import clients_conf, gres_conf, slurm_conf, slurmdbd_conf
from qtide.core.errors import QtideError
from qtide.core.files import SECRET, write_whole
from qtide.core.sockets import LOOPBACK

PAUSE = 0.02  # seconds
BACKLOG = 4096
NO_HANDLES: Mapping[str, int] = {}
START_LIMIT = 30.0
"""Seconds within which each daemon must be ready."""


class BoxFailed(QtideError):  # noqa: N818 - what happened
    """A daemon of the box did not start."""


def prepare(layout: BoxLayout, plan: BoxPlan) -> None:
    """Create the folders, the key and the configuration."""
    for folder in layout.folders():
        folder.mkdir(exist_ok=True)
    for name in plan.node_names:  # a step by PMIx has a folder on each node
        (layout.folder / "tmp" / name).mkdir(exist_ok=True)
    for folder in (layout.key.parent, layout.database, layout.folder / "state"):
        folder.chmod(0o700)
    release = Release.named(plan.release)
    own = layout.slurm_key if plan.auth == "slurm" else layout.key
    write_whole(own, secrets.token_bytes(128), 0o400)
    if plan.auth == "slurm":
        write_whole(layout.jwt_key, secrets.token_bytes(32), 0o400)
    write_whole(layout.conf, slurm_conf(layout, plan).encode())
    for number in range(max((kind.gpus for kind in plan.by_kind()), default=0)):
        layout.gpus.mkdir(exist_ok=True)
        (layout.gpus / str(number)).symlink_to(os.devnull)  # Slurm wants a device
    for name, text in {
        "gres.conf": gres_conf(layout, plan),
        CLIENTS_FILE: clients_conf(layout, plan),
        **release.files(),
    }.items():
        if text:
            write_whole(layout.conf.parent / name, text.encode())
    if plan.accounting:
        database = layout.conf.parent / "slurmdbd.conf"
        write_whole(database, slurmdbd_conf(layout, plan).encode(), SECRET)


def start(layout: BoxLayout, plan: BoxPlan) -> None:
    """Start all daemons and return when every node is idle."""
    if plan.auth == "munge":
        _start_munge(layout)
    else:  # as on a login node: commands can prove themselves while the controller is away
        launch(layout, "sackd", "-f", str(layout.conf))
    if plan.accounting:
        _start_accounting(layout, plan)
    launch(layout, "slurmctld", "-f", str(layout.conf))
    _until(lambda: _listens(plan.ports[0]), layout, "slurmctld")
    for name in plan.node_names:
        launch(layout, "slurmd", *slurmd_words(layout, name))
    _until(lambda: _all_idle(layout, plan), layout, "slurmd")


def slurmd_words(layout: BoxLayout, node: str) -> list[str]:
    """The arguments of a node's slurmd."""
    return ["-N", node, "-f", str(layout.conf), *_release(layout).slurmd_words()]


def give_tokens(layout: BoxLayout, service: str) -> None:
    """Give jobs tokens for a service by a task prolog; before that, no task waits for one."""
    served = here(service)
    place = served.socket if served is not None else None
    if place is not None and os.geteuid() == 0 and not _open_to_all(place):
        place = None  # jobs of other users cannot reach it; they use the port
    places = {"socket": str(place or "")}
    if layout.read_plan().auth == "munge":
        places["munge_socket"] = str(layout.munge_socket)
    else:
        scontrol = str(_release(layout).program("scontrol"))
        places |= {"auth": "jwt", "scontrol": scontrol, "sack": str(layout.sack_socket)}
    announce(layout.conf.parent, service, **places)
    line = f"TaskProlog={deploy(layout.conf.parent)}\n"
    known = layout.conf.read_text()
    if line not in known:
        write_whole(layout.conf, (known + line).encode())
        _ask(layout, "scontrol", "reconfigure")


def _open_to_all(place: Path) -> bool:
    """Whether every user can reach a file."""
    return all(each.stat().st_mode & 0o001 for each in place.resolve().parents)


def node_states(layout: BoxLayout) -> dict[str, str]:
    """The state of each node, as Slurm reports it; empty if Slurm does not answer."""
    lines = _ask(layout, "sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()
    return dict(line.split(" ", 1) for line in lines)


def _ask(layout: BoxLayout, name: str, *words: str) -> str:
    """Run a Slurm command; return its output, empty if it fails."""
    done = _run(layout, [_release(layout).program(name), *words], name)
    return done.stdout if done.returncode == 0 else ""


def _start_munge(layout: BoxLayout) -> None:
    """Start munged; --force accepts the private folder, and the key's mode is already set."""
    launch(
        layout,
        "munged",
        "--force",
        f"--socket={layout.munge_socket}",
        f"--key-file={layout.key}",
        f"--pid-file={layout.run}/munged.pid",
        f"--log-file={layout.log}/munged.log",
        f"--seed-file={layout.key.parent}/seed",
    )
    _until(layout.munge_socket.exists, layout, "munged")


def _start_accounting(layout: BoxLayout, plan: BoxPlan) -> None:
    data, owner = f"--datadir={layout.database}/data", f"--user={layout.folder.owner()}"
    install = ("--auth-root-authentication-method=normal", "--skip-test-db")
    launch(layout, "mariadb-install-db", "--no-defaults", data, owner, *install)
    _fork(
        layout,
        "mariadbd",
        *("--no-defaults", data, owner, "--skip-networking"),
        *(f"--socket={layout.database_socket}", f"--tmpdir={layout.folder}/tmp"),
        *(f"--pid-file={layout.run}/mariadbd.pid", f"--log-error={layout.log}/mariadbd.log"),
    )
    _until(layout.database_socket.exists, layout, "mariadbd")
    launch(layout, "slurmdbd")
    _until(lambda: _listens(plan.ports[1]), layout, "slurmdbd")
    _ask(layout, "sacctmgr", "--immediate", "add", "cluster", "qtide")


def launch(layout: BoxLayout, name: str, *words: str, within: Sequence[str] = ()) -> None:
    """Run a program of the box that goes into the background by itself or ends.

    argv[0] contains the box's folder, which distinguishes the process from those of other boxes:
    slurmdbd takes no argument that would. `within` is a command that runs the program elsewhere.
    """
    own = layout.folder / name
    if not own.is_symlink():  # newer daemons start themselves again by this name
        own.symlink_to(_release(layout).program(name))
    with _credential_socket(layout, name) as handles:
        done = _run(layout, [*within, str(own), *words], name, handles)
    if done.returncode != 0:
        raise BoxFailed(_sentence(layout, name, (done.stderr or done.stdout).strip()))


@contextmanager
def _credential_socket(layout: BoxLayout, name: str) -> Iterator[dict[str, int]]:
    """Give sackd the socket at which it answers those who ask for a credential.

    By itself, it would listen in /run, where only root may. This is how a daemon of Slurm hands
    over the socket to itself when it starts again.
    """
    if name != "sackd":
        yield {}
        return
    layout.sack_socket.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(layout.sack_socket))
        layout.sack_socket.chmod(0o777)  # the kernel tells sackd who asks
        listening.listen(BACKLOG)
        yield {"SACK_RECONFIG_FD": listening.fileno()}


def _fork(layout: BoxLayout, name: str, *words: str) -> None:
    """Run a program that cannot go into the background by itself."""
    release = _release(layout)
    _run(layout, [release.program("setsid"), "--fork", release.program(name), *words], name)


def _release(layout: BoxLayout) -> Release:
    return Release.named(layout.read_plan().release)


def _run(
    layout: BoxLayout,
    words: Sequence[str],
    name: str,
    handles: Mapping[str, int] = NO_HANDLES,
) -> subprocess.CompletedProcess[str]:
    output = layout.log / f"{name}.out"
    try:
        with output.open("w+") as out:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,  # a file, not a pipe: a daemon would keep the pipe open forever
                stderr=subprocess.STDOUT,
                cwd=layout.folder,
                env=_environment(layout) | {key: str(each) for key, each in handles.items()},
                pass_fds=tuple(handles.values()),
                timeout=START_LIMIT,
                check=False,
                text=True,
            )
        done.stdout, done.stderr = output.read_text(errors="replace"), ""
    except subprocess.TimeoutExpired:
        raise BoxFailed(
            _sentence(layout, name, f"it did not end within {START_LIMIT:g} s")
        ) from None
    return done


def _environment(layout: BoxLayout) -> dict[str, str]:
    """The environment of the daemons and of each slurmstepd that they start.

    It describes synthetic hardware: a box's node has none of its own, and detecting it would take a
    quarter of the time that a step takes to start.
    """
    topology = {"HWLOC_SYNTHETIC": "core:2 pu:1", "HWLOC_PLUGINS_PATH": str(layout.conf.parent)}
    database = {"MYSQL_UNIX_PORT": str(layout.database_socket)}
    return environment(layout.conf) | topology | database


def _until(there: Callable[[], bool], layout: BoxLayout, name: str) -> None:
    last = time.monotonic() + START_LIMIT
    while not there():
        if time.monotonic() > last:
            raise BoxFailed(_sentence(layout, name, f"it was not ready within {START_LIMIT:g} s"))
        time.sleep(PAUSE)


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _all_idle(layout: BoxLayout, plan: BoxPlan) -> bool:
    return node_states(layout) == dict.fromkeys(plan.node_names, "idle")


def _sentence(layout: BoxLayout, name: str, why: str) -> str:
    last = why.splitlines()[-1] if why else "it gave no reason"
    return f"{name} of the box did not start: {last}; see {layout.log}"


HELPERS = ("slurmstepd\n", "slurmscriptd\n")
"""Children of the daemons that overwrite their command line and environment."""
CLIENTS = ("srun", "salloc")
DAEMONS = ("munged", "sackd", "slurmctld", "slurmd", "slurmdbd", "mariadbd")


def daemons(folder: Path) -> dict[int, str]:
    """The names of the running daemons of the box in `folder`, by pid."""
    found = {pid: _words(pid, "cmdline") for pid in _pids()}
    inside = f"{folder}/"
    return {
        pid: Path(words[0]).name
        for pid, words in found.items()
        if words and Path(words[0]).name in DAEMONS and any(inside in word for word in words)
    }


def offspring(folder: Path, conf: Path) -> list[int]:
    """The processes that the box's daemons have started: their helpers and the jobs' tasks.

    This includes orphaned clients, but not those whose parent still runs.
    """
    return [
        pid
        for pid in _pids()
        if _is_helper(pid, folder) or _is_task(pid, conf) or _is_orphan(pid, conf)
    ]


def end(find: Callable[[], list[int]], limit: float) -> None:
    """Kill the processes that `find` returns until it finds none."""
    last = time.monotonic() + limit
    while pids := find():
        if time.monotonic() > last:
            raise QtideError(f"processes of the box do not end: {pids}; see what they wait for")
        for pid in pids:
            _kill(pid)
        time.sleep(PAUSE)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError:
        raise QtideError(f"process {pid} of the box is another user's; act as that user") from None


def _pids() -> Iterator[int]:
    own = os.getpid()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != own:
            yield int(entry.name)


def _words(pid: int, file: str) -> list[str]:
    """The words of a /proc file; none for a zombie, another user's process, or one that is gone."""
    try:
        text = Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in text.split(b"\0") if word]


def _is_helper(pid: int, folder: Path) -> bool:
    """Whether it is a helper of the box, by its name and its working directory."""
    entry = Path(f"/proc/{pid}")
    try:
        name, place = (entry / "comm").read_text(), (entry / "cwd").readlink()
    except OSError:
        return False
    return name in HELPERS and place.is_relative_to(folder)


def _is_task(pid: int, conf: Path) -> bool:
    """Whether it is a task of a job: only slurmstepd sets SLURMD_NODENAME."""
    words = _words(pid, "environ")
    on_node = any(word.startswith("SLURMD_NODENAME=") for word in words)
    return on_node and f"SLURM_CONF={conf}" in words


def _is_orphan(pid: int, conf: Path) -> bool:
    """Whether it is a client of the box whose parent has ended."""
    words = _words(pid, "cmdline")
    if not words or Path(words[0]).name not in CLIENTS:
        return False
    return f"SLURM_CONF={conf}" in _words(pid, "environ") and _parent(pid) == 1


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
