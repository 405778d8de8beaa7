"""The metadata of a crate: entities that refer to each other, as one JSON-LD document.

This module writes plain JSON: a crate has some forty kinds of entities, and the available
libraries would be heavier than this code. The tests run the profile's own checker.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

Entity = dict[str, Any]
Ref = dict[str, str]
"""A reference to an entity."""

CONTEXT = [
    "https://w3id.org/ro/crate/1.1/context",
    "https://w3id.org/ro/terms/workflow-run/context",
]
SECOND = "https://qudt.org/vocab/unit/SEC"
NUMBER = "https://qudt.org/vocab/unit/NUM"
FIGURES = "https://pypi.org/project/qtide/#"
"""Prefix of the property ids of qtide's figures."""


class CrateGraph:
    """Collects entities, each only once."""

    def __init__(self) -> None:
        self._entities: dict[str, Entity] = {}

    def add(self, identity: str, kind: str | list[str], **properties: Any) -> Ref:
        """Add an entity without its empty properties; an existing entity stays unchanged."""
        given = {name: value for name, value in properties.items() if value not in (None, "", [])}
        found = ref(identity)
        self._entities.setdefault(found["@id"], found | {"@type": kind} | given)
        return found

    def extend(self, entity_ref: Ref, **properties: list[Ref]) -> None:
        """Append references to an entity's lists."""
        entity = self._entities[entity_ref["@id"]]
        for name, refs in properties.items():
            known = entity.setdefault(name, [])
            known.extend(each for each in refs if each not in known)

    def point(self, entity_ref: Ref, **properties: Ref) -> None:
        """Set properties of an entity to a single reference each."""
        self._entities[entity_ref["@id"]] |= properties

    def value(self, identity: str, name: str, value: Any, **properties: Any) -> Ref:
        """Add a named value."""
        return self.add(identity, "PropertyValue", name=name, value=value, **properties)

    def figure(self, owner: str, name: str, value: float, unit: str = SECOND) -> Ref:
        """Add a measured figure of a run or a phase."""
        word = name.lower().replace(" ", "-")
        terms = {"propertyID": f"{FIGURES}{word}", "unitCode": unit}
        return self.value(f"#{owner}-{word}", name, round(value, 6), **terms)

    def document(self) -> dict[str, Any]:
        """Return all entities as JSON-LD."""
        return {
            "@context": CONTEXT,
            "@graph": [_without_lists_of_one(each) for each in self._entities.values()],
        }


def ref(identity: str) -> Ref:
    """Return a reference; quote characters of file names that ids must not contain."""
    return {"@id": quote(identity, safe=":/#")}


def text_of(value: Any) -> str:
    """Return a value as the text of a property."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _without_lists_of_one(entity: Entity) -> Entity:
    """Replace each list of one entry by that entry, as RO-Crate does."""
    return {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value
        for name, value in entity.items()
    }
