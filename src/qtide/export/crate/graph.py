"""The metadata of a crate: entities that refer to each other, as one JSON-LD document."""

from __future__ import annotations

from typing import Any

Entity = dict[str, Any]
Ref = dict[str, str]
"""A reference to an entity."""

CONTEXT = [
    "https://w3id.org/ro/crate/1.1/context",
    "https://w3id.org/ro/terms/workflow-run/context",
]


class Graph:
    """Collects entities, each once."""

    def __init__(self) -> None:
        self._entities: dict[str, Entity] = {}

    def add(self, identity: str, kind: str | list[str], **properties: Any) -> Ref:
        """Add an entity; properties that are empty are left out. An entity is added only once."""
        told = {name: value for name, value in properties.items() if value not in (None, "", [])}
        self._entities.setdefault(identity, {"@id": identity, "@type": kind} | told)
        return {"@id": identity}

    def extend(self, ref: Ref, **properties: list[Ref]) -> None:
        """Let an entity refer to more."""
        entity = self._entities[ref["@id"]]
        for name, refs in properties.items():
            known = entity.setdefault(name, [])
            known.extend(each for each in refs if each not in known)

    def point(self, ref: Ref, **properties: Ref) -> None:
        """Let an entity refer to one other."""
        self._entities[ref["@id"]] |= properties

    def value(self, identity: str, name: str, value: Any, **properties: Any) -> Ref:
        """A named value."""
        return self.add(identity, "PropertyValue", name=name, value=value, **properties)

    def document(self) -> dict[str, Any]:
        """Everything, as JSON-LD."""
        return {"@context": CONTEXT, "@graph": list(self._entities.values())}
