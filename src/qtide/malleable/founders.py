"""The processes of a program that was started as several: all of them found the job together."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from qtide.mpi.launcher import Launcher

if TYPE_CHECKING:
    from qtide.mpi.hub import Hub


def gathered(hub: Hub, launcher: Launcher) -> list[str]:
    """Meet all other processes; gives the names of their hosts, different ones for each."""
    hosts: list[str] = []

    def publish(told: list[str]) -> None:
        hosts.extend(launcher.exchanged(told[0].replace(" ", ",")))

    hub.gather(range(1, launcher.size), publish)
    names = [socket.gethostname(), *hosts[1:]]
    return [f"{name}.{at}" if name in names[:at] else name for at, name in enumerate(names)][1:]


def told(launcher: Launcher) -> str:
    """What a process other than the root has to know of it."""
    host, port, _, generation, key = launcher.exchanged(socket.gethostname())[0].split(",")
    return f"{host} {port} {launcher.rank} {generation} {key}"
