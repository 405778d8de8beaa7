"""Slots as Slurm writes them: licences and generic resources, in the notations of its versions."""

from __future__ import annotations

import re
from collections.abc import Collection

NAMES = frozenset({"qpu"})
"""The default name of a slot, as a licence or as GRES."""

LICENCE = re.compile(r"(?P<name>[^:@=]+)(?:@[^:=]+)?(?:[:=](?P<count>\d+))?")
"""`qpu`, `qpu:2`, `qpu=2`, and with the server of a remote licence `qpu@dbd:2`."""

GRES = re.compile(
    r"(?:gres[:/])?(?P<name>[^:=/]+)(?::(?P<kind>[^:=\d][^:=]*))?(?:[:=](?P<count>\d+))?"
)
"""`gres:qpu:1`, `gres/qpu:1`, `gres/qpu=1`, `qpu:1`, `qpu`; with a kind: `gres:qpu:star:1`."""


def count(licences: str, gres: str, nodes: int, names: Collection[str] = NAMES) -> int:
    """The slots of a job; one that is requested in both ways counts once."""
    return max(_sum(LICENCE, licences, names), _sum(GRES, gres, names) * nodes)


def _sum(form: re.Pattern[str], text: str, names: Collection[str]) -> int:
    """What is not understood counts as no slot: of alternatives (`a|b`), the other may be met."""
    found = (form.fullmatch(word) for word in text.split(","))
    return sum(int(each["count"] or 1) for each in found if each and each["name"] in names)
