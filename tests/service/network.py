"""Hosts on one computer: network namespaces on a switch, which can be cut off and slowed down."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.backends.slurm.fixtures import install

NUMBERS = itertools.count()
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")


class Host:
    """A namespace with an address and, if wanted, a clock that differs."""

    def __init__(self, network: Network, name: str, number: int, ahead: float = 0.0) -> None:
        self.name = f"{network.name}{name}"
        self.address = f"{network.prefix}.{number}"
        self._port = f"{network.name}p{number}"
        self._network = network
        self._ahead = ahead
        ip("netns", "add", self.name)
        ip("link", "add", self._port, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for each in ("lo", "eth0"):
            ip("-n", self.name, "link", "set", each, "up")
        ip("link", "set", self._port, "master", network.switch, "up")

    @property
    def within(self) -> list[str]:
        """The words before a command that is to run there."""
        words = ["ip", "netns", "exec", self.name]
        if self._ahead:
            moved = (f"FAKETIME={self._ahead:+g}s", "FAKETIME_DONT_FAKE_MONOTONIC=1")
            words += ["env", f"LD_PRELOAD={FAKETIME}", *moved]
        return words

    def cut_off(self) -> None:
        """Let all it sends and all that is sent to it vanish."""
        ip("link", "set", self._port, "nomaster")

    def rejoin(self) -> None:
        ip("link", "set", self._port, "master", self._network.switch)

    def ignore(self, other: Host) -> None:
        """Let what it sends to another host vanish; what that one sends still arrives."""
        ip("-n", self.name, "route", "add", "blackhole", f"{other.address}/32")

    def heed(self, other: Host) -> None:
        ip("-n", self.name, "route", "del", "blackhole", f"{other.address}/32")

    def slow_down(self, rate: str) -> None:
        """Let what it sends take longer."""
        limit = ("burst", "4kb", "latency", "2s")
        words = ("tc", "-n", self.name, "qdisc", "add", "dev", "eth0", "root", "tbf")
        subprocess.run([*words, "rate", rate, *limit], check=True)


class Network:
    """A switch, to which this computer itself is connected as well."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            pytest.fail("hosts with addresses of their own need root", pytrace=False)
        if shutil.which("ip") is None:
            install("hosts need the command ip: apt-get install iproute2", ["iproute2"])
        if not FAKETIME.exists():
            install("another clock needs libfaketime: apt-get install libfaketime", ["libfaketime"])
        number = next(NUMBERS)
        self.name = f"q{os.getpid():x}{number}"
        self.switch = f"{self.name}s"
        self.prefix = f"10.{64 + os.getpid() % 128}.{os.getpid() // 128 % 250 + number % 5}"
        self.hosts: list[Host] = []
        ip("link", "add", self.switch, "type", "bridge")
        ip("addr", "add", f"{self.prefix}.1/24", "dev", self.switch)
        ip("link", "set", self.switch, "up")

    def host(self, name: str, ahead: float = 0.0) -> Host:
        """A new host; its clock is `ahead` of the others'."""
        self.hosts.append(Host(self, name, len(self.hosts) + 2, ahead))
        return self.hosts[-1]

    def remove(self) -> None:
        """Remove everything, and kill what still runs there."""
        for each in self.hosts:
            listed = ["ip", "netns", "pids", each.name]
            for pid in subprocess.run(listed, check=True, capture_output=True).stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            ip("netns", "del", each.name)
        ip("link", "del", self.switch)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
