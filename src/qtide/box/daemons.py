"""Starting the daemons of a box, each as soon as what it needs is running."""

from __future__ import annotations

import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Sequence

from qtide.box.configuration import gres_conf, slurm_conf, slurmdbd_conf
from qtide.box.layout import Layout, Plan
from qtide.box.packages import program
from qtide.box.processes import PAUSE
from qtide.errors import QtideError
from qtide.slurm.commands import environment
from qtide.slurm.prolog.deployment import announce, deploy
from qtide.system.files import SECRET, write_whole
from qtide.system.ports import LOOPBACK

START_LIMIT = 30.0
"""Seconds within which each daemon has to be ready."""


class BoxFailed(QtideError):  # noqa: N818 - what happened
    """A daemon of the box did not start."""


def prepare(layout: Layout, plan: Plan) -> None:
    """Write the folders, the key and the configuration."""
    for folder in layout.folders():
        folder.mkdir(exist_ok=True)
    for folder in (layout.key.parent, layout.database, layout.folder / "state"):
        folder.chmod(0o700)
    write_whole(layout.key, secrets.token_bytes(128), 0o400)
    write_whole(layout.conf, slurm_conf(layout, plan).encode())
    write_whole(layout.conf.parent / "gres.conf", gres_conf(plan).encode())
    if plan.accounting:
        database = layout.conf.parent / "slurmdbd.conf"
        write_whole(database, slurmdbd_conf(layout, plan).encode(), SECRET)


def start(layout: Layout, plan: Plan) -> None:
    """Start everything, and return when every node is idle."""
    _munge(layout)
    if plan.accounting:
        _accounting(layout, plan)
    _launch(layout, "slurmctld", "-f", str(layout.conf))
    _until(lambda: _listens(plan.ports[0]), layout, "slurmctld")
    for name in plan.node_names:
        _launch(layout, "slurmd", "-N", name, "-f", str(layout.conf))
    _until(lambda: _all_idle(layout, plan), layout, "slurmd")


def give_tokens(layout: Layout, service: str) -> None:
    """Let jobs get tokens for a service; until then, no task waits for a prolog."""
    announce(layout.conf.parent, service, munge_socket=str(layout.munge_socket))
    line = f"TaskProlog={deploy(layout.conf.parent)}\n"
    known = layout.conf.read_text()
    if line not in known:
        write_whole(layout.conf, (known + line).encode())
        _ask(layout, "scontrol", "reconfigure")


def node_states(layout: Layout) -> dict[str, str]:
    """The state of each node, as Slurm reports it; empty if Slurm does not answer."""
    lines = _ask(layout, "sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()
    return dict(line.split(" ", 1) for line in lines)


def _ask(layout: Layout, name: str, *words: str) -> str:
    """The output of one of Slurm's commands; empty if it fails."""
    done = _run(layout, [program(name), *words], name)
    return done.stdout if done.returncode == 0 else ""


def _munge(layout: Layout) -> None:
    """--force accepts the private folder; the key's mode was set when it was written."""
    _launch(
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


def _accounting(layout: Layout, plan: Plan) -> None:
    data, owner = f"--datadir={layout.database}/data", f"--user={_owner(layout)}"
    install = ("--auth-root-authentication-method=normal", "--skip-test-db")
    _launch(layout, "mariadb-install-db", "--no-defaults", data, owner, *install)
    _fork(
        layout,
        "mariadbd",
        *("--no-defaults", data, owner, "--skip-networking"),
        *(f"--socket={layout.database_socket}", f"--tmpdir={layout.folder}/tmp"),
        *(f"--pid-file={layout.run}/mariadbd.pid", f"--log-error={layout.log}/mariadbd.log"),
    )
    _until(layout.database_socket.exists, layout, "mariadbd")
    _launch(layout, "slurmdbd")
    _until(lambda: _listens(plan.ports[1]), layout, "slurmdbd")
    _ask(layout, "sacctmgr", "--immediate", "add", "cluster", "qtide")


def _launch(layout: Layout, name: str, *words: str) -> None:
    """Run a program that goes into the background by itself, or ends.

    argv[0] contains the box's folder, which tells the process from those of another box: slurmdbd
    takes no argument that would.
    """
    done = _run(layout, [f"{layout.folder}/{name}", *words], name, executable=program(name))
    if done.returncode != 0:
        raise BoxFailed(_sentence(layout, name, (done.stderr or done.stdout).strip()))


def _fork(layout: Layout, name: str, *words: str) -> None:
    """Run a program that cannot go into the background by itself."""
    _run(layout, [program("setsid"), "--fork", program(name), *words], name)


def _run(
    layout: Layout, words: Sequence[str], name: str, executable: str | None = None
) -> subprocess.CompletedProcess[str]:
    output = layout.log / f"{name}.out"
    try:
        with output.open("w+") as out:
            done = subprocess.run(
                words,
                executable=executable,
                stdin=subprocess.DEVNULL,
                stdout=out,  # a file, not a pipe: a daemon would keep the pipe open forever
                stderr=subprocess.STDOUT,
                cwd=layout.folder,
                env=_environment(layout),
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


def _environment(layout: Layout) -> dict[str, str]:
    """The environment of the daemons, and of each slurmstepd that they start.

    A node of a box has no hardware of its own: detecting it would take a quarter of the time in
    which a step starts.
    """
    topology = {"HWLOC_SYNTHETIC": "core:2 pu:1", "HWLOC_PLUGINS_PATH": str(layout.conf.parent)}
    database = {"MYSQL_UNIX_PORT": str(layout.database_socket)}
    return environment(layout.conf) | topology | database


def _until(there: Callable[[], bool], layout: Layout, name: str) -> None:
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


def _all_idle(layout: Layout, plan: Plan) -> bool:
    return node_states(layout) == dict.fromkeys(plan.node_names, "idle")


def _owner(layout: Layout) -> str:
    return layout.folder.owner()


def _sentence(layout: Layout, name: str, why: str) -> str:
    last = why.splitlines()[-1] if why else "it gave no reason"
    return f"{name} of the box did not start: {last}; see {layout.log}"
