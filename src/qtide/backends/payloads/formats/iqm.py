"""Circuits as IQM's clients send them: the `circuits` and `qubit_mapping` of a run request.

A client may submit a whole run request; the IQM API handles its other fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from qtide.backends.payloads import document
from qtide.backends.payloads.guard import MOST_CIRCUITS, MOST_INSTRUCTIONS, MOST_QUBITS

WHAT = "the batch"
MAPPING = "the batch's qubit_mapping"

Check = Callable[[Any, str], Any]


@dataclass(frozen=True)
class Operation:
    """One native instruction, such as a gate, a measurement or a barrier."""

    name: str
    locus: tuple[str, ...]
    args: dict[str, Any] = field(default_factory=dict)
    implementation: str | None = None


@dataclass(frozen=True)
class IqmCircuit:
    """A circuit of native instructions on named qubits."""

    name: str
    instructions: tuple[Operation, ...]
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True)
class IqmBatch:
    """Circuits that run one after another, and the mapping of their qubits to physical ones."""

    circuits: tuple[IqmCircuit, ...]
    qubit_mapping: dict[str, str] | None = None


class _Kind(NamedTuple):
    """An operation's number of qubits (None: one or more) and arguments."""

    arity: int | None
    needed: dict[str, Check]
    optional: dict[str, Check] = {}  # noqa: RUF012 - a NamedTuple's default


_ANGLES: dict[str, Check] = {"angle": document.number, "phase": document.number}
_FEEDBACK: dict[str, Check] = {"feedback_qubit": document.text, "feedback_key": document.text}
_KINDS = {
    "prx": _Kind(1, _ANGLES),
    "cc_prx": _Kind(1, _ANGLES | _FEEDBACK),
    "cz": _Kind(2, {}),
    "move": _Kind(2, {}),
    "measure": _Kind(None, {"key": document.text}, {"feedback_key": document.text}),
    "reset": _Kind(None, {}),
    "barrier": _Kind(None, {}),
    "delay": _Kind(None, {"duration": document.number}),
}


is_circuits = True


def recognises(value: object) -> bool:
    """Whether the value is a batch of IQM circuits."""
    return isinstance(value, IqmBatch)


def pack(batch: IqmBatch) -> bytes:
    """Encode a batch as a run request."""
    fields: dict[str, Any] = {"circuits": [_circuit_form(circuit) for circuit in batch.circuits]}
    if batch.qubit_mapping is not None:
        pairs = batch.qubit_mapping.items()
        fields["qubit_mapping"] = [{"logical_name": k, "physical_name": v} for k, v in pairs]
    return document.write(fields, WHAT)


def unpack(data: bytes) -> IqmBatch:
    """Decode a batch."""
    request = document.record(document.read(data, WHAT), WHAT)
    circuits = document.sequence(request.get("circuits"), "the batch's circuits", MOST_CIRCUITS)
    if not circuits:
        document.refuse(WHAT, "there is no circuit in it")
    mapping = _mapping(request.get("qubit_mapping"))
    return IqmBatch(tuple(_circuit(one, i) for i, one in enumerate(circuits)), mapping)


def _circuit_form(circuit: IqmCircuit) -> dict[str, Any]:
    instructions = [
        {
            "name": one.name,
            "locus": one.locus,
            "args": one.args,
            "implementation": one.implementation,
        }
        for one in circuit.instructions
    ]
    return {"name": circuit.name, "instructions": instructions, "metadata": circuit.metadata}


def _mapping(value: Any) -> dict[str, str] | None:
    """Read the mapping from an object or from the list of pairs that current clients send."""
    if value is None:
        return None
    if isinstance(value, list):
        pairs = [document.record(pair, MAPPING) for pair in value]
        value = {
            document.text(pair.get("logical_name"), MAPPING): pair.get("physical_name")
            for pair in pairs
        }
    mapping = document.record(value, MAPPING)
    for physical in mapping.values():
        document.text(physical, MAPPING)
    if len(set(mapping.values())) < len(mapping):
        document.refuse(MAPPING, "two qubits are mapped to the same one")
    return mapping


def _circuit(value: Any, number: int) -> IqmCircuit:
    where = f"circuit {number}"
    fields = document.record(value, where)
    instructions = document.sequence(
        fields.get("instructions"), f"{where}, instructions", MOST_INSTRUCTIONS
    )
    name = document.text(fields.get("name", ""), f"{where}, name")
    metadata = fields.get("metadata")
    if metadata is not None:
        metadata = document.record(metadata, f"{where}, metadata")
    operations = [
        _operation(one, f"{where}, instruction {i}") for i, one in enumerate(instructions)
    ]
    _check_keys(operations, where)
    return IqmCircuit(name, tuple(operations), metadata)


def _operation(value: Any, where: str) -> Operation:
    fields = document.record(value, where)
    name = document.text(fields.get("name"), f"{where}, name")
    kind = _KINDS.get(name)
    if kind is None:
        document.refuse(where, f"there is no operation {document.brief(name)}")
    locus = _locus(fields, name, kind.arity, where)
    implementation = fields.get("implementation")
    if implementation is not None:
        implementation = document.text(implementation, where)
    return Operation(name, locus, _args(fields.get("args"), name, kind, where), implementation)


def _locus(fields: dict[str, Any], name: str, arity: int | None, where: str) -> tuple[str, ...]:
    """Read the locus, which clients before 2025 called `qubits`."""
    value = fields["locus"] if "locus" in fields else fields.get("qubits")
    qubits = document.sequence(value, f"{where}, locus", MOST_QUBITS)
    for qubit in qubits:
        document.text(qubit, f"{where}, locus")
    if len(set(qubits)) < len(qubits):
        document.refuse(where, f"{name} names a qubit twice")
    if len(qubits) != arity and (arity is not None or not qubits):
        document.refuse(where, f"{name} takes {arity or 'some'} qubits, not {len(qubits)}")
    return tuple(qubits)


def _args(value: Any, name: str, kind: _Kind, where: str) -> dict[str, Any]:
    """Read the arguments; null counts as missing."""
    given = {} if value is None else document.record(value, f"{where}, args")
    args = {key: one for key, one in given.items() if one is not None}
    for key in kind.needed.keys() - args.keys():
        document.refuse(where, f"{name} needs the argument {key!r}")
    for key, one in args.items():
        check = kind.needed.get(key) or kind.optional.get(key)
        if check is None:
            document.refuse(where, f"{name} takes no argument {document.brief(key)}")
        check(one, f"{where}, {key}")
    return args


def _check_keys(operations: list[Operation], where: str) -> None:
    """Check that each key is unique and that feedback comes from an earlier measurement."""
    keys: set[str] = set()
    feedback: dict[str, tuple[str, ...]] = {}
    for number, one in enumerate(operations):
        place = f"{where}, instruction {number}"
        if one.name == "measure":
            key, name = one.args["key"], one.args.get("feedback_key")
            if key in keys:
                document.refuse(place, f"the measurement key {document.brief(key)} is used already")
            if name in feedback:
                document.refuse(place, f"the feedback key {document.brief(name)} is used already")
            keys.add(key)
            if name is not None:
                feedback[name] = one.locus
        elif one.name == "cc_prx":
            key, qubit = one.args["feedback_key"], one.args["feedback_qubit"]
            if qubit not in feedback.get(key, ()):
                known = f"{document.brief(key)} on {document.brief(qubit)}"
                document.refuse(place, f"no earlier measurement gave {known}")
