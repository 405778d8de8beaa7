"""A revision: what differs between two configurations, and what of it needs a restart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from qtide.service.configuration import Configuration

FIXED = ("listen", "state", "socket", "anonymous", "slurm")
"""Entries that a running service cannot change."""
FIXED_LIMITS = ("limits.validators", "limits.admissions_per_user")


class Revision:
    """From one configuration to another, for a service that goes on."""

    def __init__(self, old: Configuration, new: Configuration) -> None:
        fixed = [*FIXED, *_tls(old, new)]
        self.configuration = new.model_copy(update={name: getattr(old, name) for name in fixed})
        """The new one, with the old entries where only a restart can change them."""
        differences = list(_differences(old.model_dump(), new.model_dump()))
        later = {*fixed, *FIXED_LIMITS}
        self.after_restart = [each for each in differences if _is_in(each, later)]
        self.changed = [each for each in differences if not _is_in(each, later)]


def _tls(old: Configuration, new: Configuration) -> tuple[str, ...]:
    """A certificate can be replaced by another, but neither come nor go."""
    same = (old.certificate is None) == (new.certificate is None)
    return () if same else ("certificate", "key")


def _is_in(place: str, parts: set[str]) -> bool:
    return place in parts or place.partition(".")[0] in parts


def _differences(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Where two configurations differ; what the entries are may be secret."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        if old != new:
            yield place
        return
    for name in dict.fromkeys([*old, *new]):
        yield from _differences(old.get(name), new.get(name), f"{place}.{name}".strip("."))
