"""The metadata of a crate: entities that refer to each other, as one JSON-LD document."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

Entity = dict[str, Any]
Ref = dict[str, str]
"""A reference to an entity."""

CONTEXT = [
    "https://w3id.org/ro/crate/1.1/context",
    "https://w3id.org/ro/terms/workflow-run/context",
]


def ref(identity: str) -> Ref:
    """The reference to an entity: names of files may have any characters, identities may not."""
    return {"@id": quote(identity, safe=":/#")}


class Graph:
    """Collects entities, each once."""

    def __init__(self) -> None:
        self._entities: dict[str, Entity] = {}

    def add(self, identity: str, kind: str | list[str], **properties: Any) -> Ref:
        """Add an entity; properties that are empty are left out. An entity is added only once."""
        told = {name: value for name, value in properties.items() if value not in (None, "", [])}
        found = ref(identity)
        self._entities.setdefault(found["@id"], found | {"@type": kind} | told)
        return found

    def extend(self, entity_ref: Ref, **properties: list[Ref]) -> None:
        """Let an entity refer to more."""
        entity = self._entities[entity_ref["@id"]]
        for name, refs in properties.items():
            known = entity.setdefault(name, [])
            known.extend(each for each in refs if each not in known)

    def point(self, entity_ref: Ref, **properties: Ref) -> None:
        """Let an entity refer to one other."""
        self._entities[entity_ref["@id"]] |= properties

    def value(self, identity: str, name: str, value: Any, **properties: Any) -> Ref:
        """A named value."""
        return self.add(identity, "PropertyValue", name=name, value=value, **properties)

    def document(self) -> dict[str, Any]:
        """Everything, as JSON-LD."""
        return {"@context": CONTEXT, "@graph": [_plain(each) for each in self._entities.values()]}


def _plain(entity: Entity) -> Entity:
    """RO-Crate has no lists of one."""
    return {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value
        for name, value in entity.items()
    }
