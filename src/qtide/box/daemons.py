"""The daemons of a box: their start, their configuration and their processes."""

from __future__ import annotations

import ipaddress
import os
import pwd
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
        CLIENTS_FILE: _clients_conf(layout, plan),
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


def slurm_conf(layout: BoxLayout, plan: BoxPlan) -> str:
    """The configuration for the controller, the nodes and all clients."""
    host, user, folder = socket.gethostname(), _user(), layout.folder
    return f"""\
ClusterName=qtide
SlurmctldHost={host}({LOOPBACK})
SlurmctldPort={plan.ports[0]}
SlurmUser={user}
SlurmdUser={user}
{_bound_to_loopback(host)}{_auth(layout, plan)}{Release.named(plan.release).settings()}\
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
TmpFS={folder}/tmp
SlurmctldPidFile={layout.run}/slurmctld.pid
SlurmdPidFile={layout.run}/slurmd-%n.pid
SlurmctldLogFile={layout.log}/slurmctld.log
SlurmdLogFile={layout.log}/slurmd-%n.log
# several slurmd on one machine, without cgroups
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
{_cred(plan)}TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
# schedule at once: there are no other users
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout={plan.slurmd_timeout}
KillWait=2
# a step that ends while the controller is away is not unkillable: no node is drained for it
UnkillableStepTimeout=300
MinJobAge=600
{_accounting(layout, plan)}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=qpu{",gpu" if any(kind.gpus for kind in plan.by_kind()) else ""}
Licenses={",".join([f"qpu:{plan.qpus}", *plan.licences])}
{_nodes(plan, host)}
PartitionName=compute Nodes={",".join(plan.node_names[: plan.nodes])} Default=YES OverSubscribe=EXCLUSIVE State=UP
PartitionName=quantum Nodes=q1 State=UP
{_other_partitions(plan)}"""  # noqa: E501 - a partition is one line


def _other_partitions(plan: BoxPlan) -> str:
    """One partition for each other kind of nodes; jobs may share these nodes."""
    return "".join(
        f"PartitionName={kind.name} Nodes={','.join(names)} State=UP\n"
        for kind, names in plan.by_kind().items()
    )


GPU_FLAGS = "Flags=nvidia_gpu_env,amd_gpu_env"
"""Slurm sets CUDA_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES, as for real GPUs."""


def gres_conf(layout: BoxLayout, plan: BoxPlan) -> str:
    """The virtual QPUs of the quantum node, and pretended GPUs: Slurm wants a file for each."""
    gpus = [
        f"NodeName={','.join(names)} Name=gpu File={layout.gpus}/[0-{kind.gpus - 1}] {GPU_FLAGS}\n"
        for kind, names in plan.by_kind().items()
        if kind.gpus
    ]
    return f"NodeName=q1 Name=qpu Count={plan.qpus}\n{''.join(gpus)}"


def slurmdbd_conf(layout: BoxLayout, plan: BoxPlan) -> str:
    """The configuration for the accounting daemon; its database listens only on a socket."""
    return f"""\
{_auth(layout, plan)}{Release.named(plan.release).settings()}\
DbdHost=localhost
DbdAddr={LOOPBACK}
DbdPort={plan.ports[1]}
SlurmUser={_user()}
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
{_bound_to_loopback(socket.gethostname())}LogFile={layout.log}/slurmdbd.log
PidFile={layout.run}/slurmdbd.pid
"""


def _auth(layout: BoxLayout, plan: BoxPlan) -> str:
    """How daemons and commands prove themselves; `slurm` reads slurm.key beside slurm.conf.

    Only sackd answers those who ask for a credential: there is one place for the sockets of the
    other daemons, whatever the number of boxes.
    """
    if plan.auth == "slurm":
        tokens = f"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={layout.jwt_key}\n"
        return f"AuthType=auth/slurm\nAuthInfo=disable_sack\n{tokens}"
    return f"AuthType=auth/munge\nAuthInfo=socket={layout.munge_socket}\n"


def _cred(plan: BoxPlan) -> str:
    return "CredType=cred/slurm\n" if plan.auth == "slurm" else ""


def _clients_conf(layout: BoxLayout, plan: BoxPlan) -> str:
    """Where the commands are that fit this Slurm, for everybody who knows only its slurm.conf."""
    release = Release.named(plan.release)
    lines = [f"bin={release.folder / 'bin'}\n"] if release.folder else []
    lines += [f"SLURM_SACK_SOCKET={layout.sack_socket}\n"] if plan.auth == "slurm" else []
    return "".join(lines)


def _user() -> str:
    """The name of the current user, whatever the environment says."""
    return pwd.getpwuid(os.getuid()).pw_name


def _bound_to_loopback(host: str) -> str:
    """The setting that binds Slurm to loopback; empty if the host's name is not loopback.

    Slurm can bind only to the address of the host's own name, or to all addresses.
    """
    try:
        address = ipaddress.ip_address(socket.gethostbyname(host))
    except OSError:
        return ""
    if str(address) != LOOPBACK:
        return ""
    return "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\n"


def _accounting(layout: BoxLayout, plan: BoxPlan) -> str:
    if not plan.accounting:
        return "AccountingStorageType=accounting_storage/none"
    pass_line = f"AccountingStoragePass={layout.munge_socket}\n" if plan.auth == "munge" else ""
    return f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={plan.ports[1]}
{pass_line}AccountingStoreFlags=job_comment"""


def _nodes(plan: BoxPlan, host: str) -> str:
    common = f"NodeHostname={host} NodeAddr={LOOPBACK} State=UNKNOWN"
    cores = {name: os.cpu_count() or 1 for name in plan.node_names} | {"q1": max(4, plan.qpus)}
    extra = {"q1": f" Gres=qpu:{plan.qpus}"}
    memory = dict.fromkeys(plan.node_names, 1024)
    for kind, names in plan.by_kind().items():
        cores |= dict.fromkeys(names, kind.cores)
        memory |= dict.fromkeys(names, max(1, (kind.memory or 2**30) // 2**20))
        extra |= dict.fromkeys(names, f" Gres=gpu:{kind.gpus}" if kind.gpus else "")
    return "\n".join(
        f"NodeName={name} Port={port} CPUs={cores[name]} RealMemory={memory[name]} {common}"
        f"{extra.get(name, '')}"
        for name, port in zip(plan.node_names, plan.ports[2:], strict=True)
    )


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
