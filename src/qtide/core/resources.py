"""Resources: what a task needs, what a node has, and the account of what is free on it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from qtide.core.errors import NotEnoughNodes, UsageError

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?B)", re.IGNORECASE)
ROUNDING = 1e-9
PLAIN = "node"
"""Name of the only kind of nodes where a cluster does not tell several apart."""


def size_in_bytes(said: Any) -> int:
    """Convert `16 GB`, `512 MiB` or a number of bytes to bytes."""
    if isinstance(said, int) and not isinstance(said, bool) and said > 0:
        return said
    found = AMOUNT.fullmatch(str(said).strip())
    amount = int(float(found[1]) * UNITS[found[2].upper()]) if found else 0
    if amount <= 0:
        raise ValueError(f"an amount of memory is given as in '16 GB', not {said!r}")
    return amount


def in_words(amount: int) -> str:
    """Bytes for people, such as `16 GB`."""
    unit = next((each for each in ("TB", "GB", "MB", "KB") if amount >= UNITS[each]), "B")
    return f"{amount / UNITS[unit]:.3g} {unit}"


@dataclass(frozen=True)
class Needs:
    """What a task needs of a node; without cores, GPUs and memory, it needs a whole node."""

    cores: int | None = None
    gpus: int = 0
    memory: int | None = None
    """In bytes."""
    kind: str | None = None
    """The kind of node; None for the cluster's usual kind."""

    @staticmethod
    def of(
        cores: int | None = None,
        gpus: int = 0,
        memory: str | int | None = None,
        kind: str | None = None,
    ) -> Needs:
        """Check what a program or a user says; a task that needs GPUs or memory gets one core."""
        if cores is not None and not _is_number(cores, 1):
            raise ValueError(f"cores is a number from 1 on, not {cores!r}")
        if not _is_number(gpus, 0):
            raise ValueError(f"gpus is a number from 0 on, not {gpus!r}")
        if kind is not None and not (isinstance(kind, str) and kind):
            raise ValueError(f"kind is the name of a kind of nodes, not {kind!r}")
        bytes_needed = None if memory is None else size_in_bytes(memory)
        if cores is None and (gpus or bytes_needed is not None):
            cores = 1
        return Needs(cores, gpus, bytes_needed, kind)

    @staticmethod
    def parse(word: str) -> Needs:
        """Read a command line's `cores=4,gpus=1,memory=16GB,kind=gpu`."""
        try:
            return Needs.of(**_entries(word, ("cores", "gpus", "memory", "kind")))
        except ValueError as error:
            raise UsageError(f"give needs as in cores=4,gpus=1,memory=16GB: {error}") from None

    @property
    def whole(self) -> bool:
        """Whether a task takes a whole node."""
        return self.cores is None

    def __str__(self) -> str:
        if self.whole:
            return f"a whole node of kind {self.kind}" if self.kind else "a whole node"
        words = [_counted(self.cores or 1, "core")]
        words += [_counted(self.gpus, "GPU")] if self.gpus else []
        words += [in_words(self.memory)] if self.memory is not None else []
        kind = f" of kind {self.kind}" if self.kind else ""
        return f"{', '.join(words)} of a node{kind}"


WHOLE = Needs()
WEIGHTS = "CPU=1,GRES/gpu=4,Mem=0.25G"
WEIGHT = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)", re.IGNORECASE)
POWERS = {unit: 2 ** (10 * power) for power, unit in enumerate("BKMGTP")}


@dataclass(frozen=True)
class BillingWeights:
    """What a site charges for each second of a core, a GPU, a byte and a node."""

    cores: float = 0.0
    gpus: float = 0.0
    memory: float = 0.0
    nodes: float = 0.0
    highest: bool = False
    """Whether only the largest of these counts, not their sum (Slurm: MAX_TRES)."""

    @staticmethod
    def parse(word: str, *, ignore_others: bool = False, highest: bool = False) -> BillingWeights:
        """Read `CPU=1,GRES/gpu=4,Mem=0.25G`, the notation of Slurm's TRESBillingWeights."""
        found: dict[str, float] = {}
        for entry in filter(None, word.split(",")):
            name, _, value = (part.strip() for part in entry.partition("="))
            field = _BILLED.get(name.lower().partition(":")[0])
            amount = WEIGHT.fullmatch(value)
            if field is None and ignore_others:
                continue
            if field is None or amount is None:
                raise UsageError(f"billing weights are said as in {WEIGHTS}, not {entry!r}")
            # Slurm counts memory in mebibytes, unless the weight has a unit
            unit = POWERS[amount[2].upper() or "M"] if field == "memory" else 1
            found[field] = float(amount[1]) / unit
        return BillingWeights(**found, highest=highest)

    def rate(self, cores: int, gpus: int, memory: int | None) -> float:
        """What each second of a node, or of a part of it, is charged."""
        each = (
            self.cores * cores,
            self.gpus * gpus,
            self.memory * (memory or 0),
            self.nodes,
        )
        return max(each) if self.highest else sum(each)


MOST_NODES, MOST_UNITS = 100_000, 10_000
"""Of a cluster, and of a node's cores or GPUs: more are a slip, and each would be kept count of."""


def check_size(nodes: int = 1, cores: int = 1, gpus: int = 0, kind: str = PLAIN) -> None:
    """Refuse sizes that no cluster has."""
    of_kind = "" if kind == PLAIN else f" of kind {kind}"
    for noun, number, least, most in (
        (f"nodes{of_kind}", nodes, 1, MOST_NODES),
        (f"cores of a node{of_kind}", cores, 1, MOST_UNITS),
        (f"GPUs of a node{of_kind}", gpus, 0, MOST_UNITS),
    ):
        if not least <= number <= most:
            raise UsageError(f"the number of {noun} is from {least} to {most:,}, not {number:,}")


_BILLED = {"cpu": "cores", "gres/gpu": "gpus", "mem": "memory", "node": "nodes"}
EXAMPLE = "gpu:2,cores=8,gpus=4"


@dataclass(frozen=True)
class NodeKind:
    """Nodes that are alike; None stands for cores and memory that nobody has told."""

    name: str = PLAIN
    count: int = 1
    cores: int = 1
    gpus: int = 0
    memory: int | None = None
    sockets: int = 1
    """Number of groups into which the cores are divided, each with memory of its own."""
    is_part: bool = False
    """Whether these are parts of nodes that other jobs may share."""
    weights: BillingWeights | None = None
    """What the site charges; None if nobody has told."""
    fraction: float = 1.0
    """What a part of a node is charged, as a fraction of the whole node's charge."""

    @staticmethod
    def parse(word: str, usual: NodeKind | None = None) -> NodeKind:
        """Read a command line's `gpu:2,cores=8,gpus=4,memory=64GB`: two nodes of kind gpu.

        What is not said is as for `usual`.
        """
        first, _, rest = word.partition(",")
        name, _, count = first.partition(":")
        try:
            found = _entries(rest, ("cores", "gpus", "memory", "sockets")) if rest else {}
            if "memory" in found:
                found["memory"] = size_in_bytes(found["memory"])
        except ValueError as error:
            raise UsageError(f"a kind of nodes is said as in {EXAMPLE}: {error}") from None
        if not name.isidentifier() or not (count.isdecimal() and int(count) > 0):
            raise UsageError(
                f"a kind of nodes begins with its name and number, as in {EXAMPLE}, not {first!r}"
            )
        made = replace(usual or NodeKind(), name=name, count=int(count), **found)
        check_size(made.count, made.cores, made.gpus, name)
        if made.sockets < 1:
            raise UsageError(f"a node of kind {name} has at least one socket, not {made.sockets}")
        return made

    @staticmethod
    def parse_all(words: Iterable[str], usual: NodeKind | None = None) -> list[NodeKind]:
        """Read the kinds of a cluster, each with a name of its own."""
        found = [NodeKind.parse(word, usual) for word in words]
        for name, number in Counter(each.name for each in found).items():
            if number > 1:
                raise UsageError(f"the kind of nodes {name!r} is said {number} times; say it once")
        return found

    def __str__(self) -> str:
        nodes = _counted(self.count, "node")
        return f"{self.name} ({nodes} with {self.content})"

    def share(self, needs: Needs) -> float:
        """Fraction of a node that a task takes: of whatever it takes most of; above 1, too much."""
        if needs.cores is None:
            return 1.0
        shares = [needs.cores / self.cores]
        if needs.gpus:
            shares.append(needs.gpus / self.gpus if self.gpus else 2.0)
        if needs.memory is not None and self.memory is not None:
            shares.append(needs.memory / self.memory)
        return max(shares)

    def refuse_if_impossible(self, needs: Needs, who: str) -> None:
        """Raise NotEnoughNodes, with what a node has, if the needs never fit on one."""
        if self.share(needs) > 1:
            of_kind = "" if self.name == PLAIN else f" of kind {self.name}"
            other = "a kind or a cluster" if of_kind else "a cluster"
            raise NotEnoughNodes(
                f"{who} needs {needs}, but a node{of_kind} has {self.content}; ask for less, or "
                f"name {other} with larger nodes"
            )

    def divided(self, part: Needs) -> NodeKind:
        """The kind whose nodes are parts of these nodes."""
        share = self.share(part)
        number, memory = self.count * int(1 / share + ROUNDING), part.memory or self.memory
        terms: dict[str, Any] = {"weights": self.weights, "is_part": True, "fraction": share}
        made = NodeKind(self.name, number, part.cores or 1, part.gpus, memory, **terms)
        return replace(made, fraction=made.rate / self.rate) if self.rate else made

    @property
    def rate(self) -> float:
        """What each second of a node is charged; 0 if nobody has told."""
        return self.weights.rate(self.cores, self.gpus, self.memory) if self.weights else 0.0

    @property
    def whole_rate(self) -> float:
        """What each second of a whole node is charged, of which these may be parts."""
        return self.rate / self.fraction

    def part_rate(self, part: NodePart | None) -> float:
        """What each second of a task is charged that has a part of a node, or all of it."""
        if self.weights is None or part is None:
            return self.rate
        return self.weights.rate(len(part.cores), len(part.gpus), part.memory)

    def charge(self, usual: NodeKind) -> float:
        """What a second of a node is charged, where one of a whole node of the usual kind is 1."""
        if not self.rate or not usual.rate:
            return self.fraction
        return self.rate / usual.whole_rate

    @property
    def size(self) -> tuple[int, int] | None:
        """The numbers of cores and GPUs of a node; None if nobody has told them."""
        return None if self == UNKNOWN else (self.cores, self.gpus)

    @property
    def content(self) -> str:
        """What a node has, in words."""
        words = [_counted(self.cores, "core")]
        words += [_counted(self.gpus, "GPU")] if self.gpus else ["no GPU"]
        return ", ".join(words + ([in_words(self.memory)] if self.memory is not None else []))


UNKNOWN = NodeKind()
"""What a node has of which nobody has told anything."""


@dataclass(frozen=True)
class NodePart:
    """The part of a node that a running task has: the numbers of its cores and GPUs, and bytes."""

    cores: tuple[int, ...]
    gpus: tuple[int, ...] = ()
    memory: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Convert for the message to the node."""
        return {"cores": self.cores, "gpus": self.gpus, "memory": self.memory}


class Room:
    """The account of a node: which of its cores, GPUs and bytes are free."""

    def __init__(self, kind: NodeKind) -> None:
        self.kind = kind
        self.cores = list(range(kind.cores))
        self.gpus = list(range(kind.gpus))
        self.memory = kind.memory
        self.tasks = 0
        """Number of tasks that have a part of the node."""

    @property
    def share(self) -> float:
        """Largest fraction that is free of its cores, GPUs or memory; no larger part fits."""
        kind, shares = self.kind, [len(self.cores) / self.kind.cores]
        if kind.gpus:
            shares.append(len(self.gpus) / kind.gpus)
        if kind.memory and self.memory is not None:
            shares.append(self.memory / kind.memory)
        return max(shares)

    def fits(self, needs: Needs) -> bool:
        """Whether a task finds its part now; a task for a whole node fits on an empty one."""
        if needs.cores is None:
            return not self.tasks
        enough = len(self.cores) >= needs.cores and len(self.gpus) >= needs.gpus
        return enough and (self.memory is None or (needs.memory or 0) <= self.memory)

    def take(self, needs: Needs) -> NodePart:
        """Take a part that fits, with cores near each other."""
        cores = self._near(needs.cores or len(self.cores))
        gpus, self.gpus = tuple(self.gpus[: needs.gpus]), self.gpus[needs.gpus :]
        taken = set(cores)
        self.cores = [each for each in self.cores if each not in taken]
        if self.memory is not None and needs.memory is not None:
            self.memory -= needs.memory
        self.tasks += 1
        return NodePart(cores, gpus, needs.memory)

    def give_back(self, slot: NodePart) -> None:
        """Return a part."""
        self.cores = sorted([*self.cores, *slot.cores])
        self.gpus = sorted([*self.gpus, *slot.gpus])
        if self.memory is not None and slot.memory is not None:
            self.memory += slot.memory
        self.tasks -= 1

    def _near(self, number: int) -> tuple[int, ...]:
        """Free cores of the fullest socket with so many; if there is none, the first free ones."""
        if self.kind.sockets > 1:
            size = ceil(self.kind.cores / self.kind.sockets)
            by_socket = Counter(core // size for core in self.cores)
            enough = [(free, socket) for socket, free in by_socket.items() if free >= number]
            if enough:
                _, chosen = min(enough)
                near = [core for core in self.cores if core // size == chosen]
                return tuple(near[:number])
        return tuple(self.cores[:number])


def nodes_filled(shares: Iterable[float] | Mapping[float, int], most: int) -> int:
    """Number of nodes, at most `most`, that tasks with these shares fill if all run at once."""
    rooms: list[float] = []
    for share, number in sorted(Counter(shares).items(), reverse=True):
        waiting = number
        for n, room in enumerate(rooms):
            placed = min(waiting, int(room / share + ROUNDING))
            rooms[n], waiting = room - placed * share, waiting - placed
        while waiting > 0:
            if len(rooms) == most:
                return most
            placed = min(waiting, max(1, int(1 / share + ROUNDING)))
            rooms.append(1 - placed * share)
            waiting -= placed
    return len(rooms)


def _is_number(said: Any, least: int) -> bool:
    return isinstance(said, int) and not isinstance(said, bool) and said >= least


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _entries(word: str, known: tuple[str, ...]) -> dict[str, Any]:
    """Read `cores=4,memory=16GB`; numbers become integers."""
    found: dict[str, Any] = {}
    for entry in word.split(","):
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not equals or name not in known:
            raise ValueError(f"{entry.strip()!r} is none of {', '.join(f'{n}=' for n in known)}")
        if name in found:
            raise ValueError(f"{name} is said twice")
        found[name] = int(value) if value.isdecimal() else value
        if name in ("cores", "gpus", "sockets") and not isinstance(found[name], int):
            raise ValueError(f"{name} is a number, not {value!r}")
    return found
