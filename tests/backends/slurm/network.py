"""A network for the nodes of a box: each in a namespace, on a virtual wire that can be cut."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from qtide import box
from qtide.box.daemons import daemons, launch, slurmd_words
from qtide.box.layout import BoxLayout
from qtide.core.errors import QtideError
from tests.backends.slurm.stage import until

SLURMD_TIMEOUT = 300
"""Slurm's own default: how long Slurm itself takes to notice that a node is lost."""


class NoNamespaces(QtideError):
    """This machine does not let us make a network."""


class Network:
    """A bridge, and for each node a namespace with one virtual wire to it."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._mark = f"qt{os.getpid()}"
        self._subnet = _unused_subnet()
        self._numbers = {node: number for number, node in enumerate(nodes, 1)}
        self.controller = f"{self._subnet}.254"

    def make(self) -> None:
        _ip("link", "add", self._mark, "type", "bridge")
        _ip("addr", "add", f"{self.controller}/24", "dev", self._mark)
        _ip("link", "set", self._mark, "up")
        for node in self._numbers:
            self._join(node)

    def remove(self) -> None:
        for node in self._numbers:
            # the wire first: a namespace takes its time to end
            _ip("link", "del", self._name(node), check=False)
            _ip("netns", "del", self._name(node), check=False)
        _ip("link", "del", self._mark, check=False)

    def address(self, node: str) -> str:
        return f"{self._subnet}.{self._numbers[node]}"

    def within(self, node: str, *words: str) -> list[str]:
        """A command as it runs on a node."""
        return ["nsenter", f"--net=/run/netns/{self._name(node)}", *words]

    def cut(self, node: str) -> None:
        """Let nothing through any more; no process is told that anything was closed."""
        _ip("link", "set", self._name(node), "down")

    def mend(self, node: str) -> None:
        _ip("link", "set", self._name(node), "up")

    def lose_power(self, node: str) -> None:
        """Cut the wire, then kill everything on the node, so that no last message gets out."""
        self.cut(node)
        while pids := _ip("netns", "pids", self._name(node)).split():
            for pid in pids:
                _kill(int(pid))

    def _join(self, node: str) -> None:
        name = self._name(node)
        _ip("netns", "add", name)
        ends = ("type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "add", name, "master", self._mark, *ends)
        _ip("link", "set", name, "up")
        _ip("-n", name, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
        for each in ("lo", "eth0"):
            _ip("-n", name, "link", "set", each, "up")

    def _name(self, node: str) -> str:
        """The names of its namespace and of our end of its wire."""
        return f"{self._mark}-{node}"


def refusal() -> str:
    """Why this machine does not let us make a network; empty if it does."""
    if os.geteuid() != 0:
        return "a network of namespaces can be made by root alone"
    if shutil.which("ip") is None:
        return "a network of namespaces needs the command ip, of the package iproute2"
    probe = Network(["c1"])
    try:
        probe.make()
    except NoNamespaces as error:
        return str(error)
    finally:
        probe.remove()
    return ""


@contextmanager
def wired(folder: Path, nodes: int, slurmd_timeout: int = SLURMD_TIMEOUT) -> Iterator[Network]:
    """A box whose compute nodes are on their own network."""
    plan = box.up(folder, nodes=nodes, slurmd_timeout=slurmd_timeout).plan
    network = Network(plan.node_names[:-1])
    try:
        network.make()
        _rewire(folder, network, plan.node_names[:-1])
        yield network
    finally:
        network.remove()


def _rewire(folder: Path, network: Network, nodes: Sequence[str]) -> None:
    """Give the box's nodes their new addresses, and start its daemons again, each in its place."""
    conf = folder / "etc/slurm.conf"
    text = re.sub(r"CommunicationParameters=.*\n", "", conf.read_text())
    text = text.replace("(127.0.0.1)", f"({network.controller})")
    for node in nodes:
        moved = rf"\g<1>{network.address(node)}"
        text = re.sub(rf"(NodeName={node} .*NodeAddr=)127.0.0.1", moved, text)
    conf.write_text(text)
    layout, wanted = BoxLayout(folder), {*nodes, "q1"}

    def idle() -> set[str]:
        return {name for name, state in box.status(folder).nodes.items() if state == "idle"}

    for _ in range(3):  # daemons that were just killed may leave a state that takes long to clear
        _end_slurm(folder)
        launch(layout, "slurmctld", "-f", str(conf))
        launch(layout, "slurmd", *slurmd_words(layout, "q1"))
        for node in nodes:
            launch(layout, "slurmd", *slurmd_words(layout, node), within=network.within(node))
        if until(lambda: idle() == wanted, 60.0):
            return
    raise AssertionError(f"not all nodes are idle: {box.status(folder).nodes}")


def _end_slurm(folder: Path) -> None:
    def running() -> list[int]:
        found = daemons(folder).items()
        return [pid for pid, name in found if name in ("slurmctld", "slurmd")]

    for pid in running():
        _kill(pid)
    assert until(lambda: not running())


def _unused_subnet() -> str:
    """Each process starts its search elsewhere, so that two at once do not find the same."""
    used = subprocess.run(["ip", "-4", "-o", "addr"], capture_output=True, text=True, check=True)
    subnets = (f"10.213.{(os.getpid() + number) % 254 + 1}" for number in range(254))
    return next(each for each in subnets if f"{each}." not in used.stdout)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _ip(*words: str, check: bool = True) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False, timeout=30)
    if check and done.returncode:
        why = done.stderr.strip().splitlines()[-1]
        raise NoNamespaces(f"this machine lets us make no network: ip {' '.join(words)}: {why}")
    return done.stdout
