"""PUBs of Qiskit's primitives: each is a circuit, an array of parameter values, and observables.

A PUB travels as it is: its circuit once, its values as one array. The device binds them. The bytes
are the length of the head, the head as JSON, a QPY file with all circuits, and all values as
64-bit floats.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

from qtide.backends.payloads import document
from qtide.backends.payloads.formats.qiskit_circuits import qpy
from qtide.backends.payloads.guard import MOST_BYTES, MOST_CIRCUITS
from qtide.backends.payloads.payload import PayloadRefused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Shape = tuple[int, ...]

WHAT = "the PUBs"
LENGTH = 4
"""Bytes of the head's length."""
MOST_SETS = 100_000
"""The most parameter sets of a PUB, and the most expectation values that it may ask for."""
MOST_TERMS = 10_000
"""The most Pauli terms in the observables of a PUB."""
CALIBRATIONS = 2
"""Circuits that readout mitigation adds to a task: all qubits in 0, and all in 1."""


class Pauli(NamedTuple):
    """A Pauli operator as two masks, with qubit 0 in the lowest bit; both bits set mean Y."""

    x: int
    z: int

    @classmethod
    def of(cls, label: str) -> Pauli:
        """Read a label as Qiskit writes it: the last letter is qubit 0."""
        x = z = 0
        for letter in label:
            x, z = 2 * x + (letter in "XY"), 2 * z + (letter in "ZY")
        return cls(x, z)

    @property
    def support(self) -> int:
        """The qubits on which it acts."""
        return self.x | self.z

    def agrees(self, other: Pauli) -> bool:
        """Whether both can be measured in one basis: they are equal where both act."""
        both = self.support & other.support
        return not ((self.x ^ other.x) | (self.z ^ other.z)) & both

    def __or__(self, other: Pauli) -> Pauli:
        return Pauli(self.x | other.x, self.z | other.z)


class MeasurementGroup(NamedTuple):
    """Operators that are measured together, and the parameter sets for which they are."""

    basis: Pauli
    operators: frozenset[Pauli]
    sets: tuple[int, ...]


@dataclass(frozen=True)
class ObservableArray:
    """Observables in an array of any shape, each as real coefficients of Pauli labels."""

    shape: Shape
    entries: tuple[dict[str, float], ...]


@dataclass(frozen=True, eq=False)
class Pub:
    """A circuit with one row of parameter values per set; an estimator's PUB has observables."""

    circuit: Any
    values: NDArray[np.float64]
    """The last axis is that of the circuit's parameters, in Qiskit's order."""
    share: float = 1.0
    """The fraction of the task's shots that each of its circuits takes."""
    observables: ObservableArray | None = None

    def shots(self, of_task: int) -> int:
        """How many shots each circuit takes."""
        return max(1, round(self.share * of_task))

    @property
    def rows(self) -> NDArray[np.float64]:
        """The values as one row per set, whatever the array's shape."""
        return self.values.reshape(math.prod(self.values.shape[:-1]), self.values.shape[-1])

    @cached_property
    def pairs(self) -> tuple[Shape, list[tuple[int, int]]]:
        """The shape of the result, and for each entry its parameter set and its observable."""
        import numpy as np

        assert self.observables is not None
        sets = np.arange(len(self.rows)).reshape(self.values.shape[:-1])
        entries = np.arange(len(self.observables.entries)).reshape(self.observables.shape)
        first, second = np.broadcast_arrays(sets, entries)
        return first.shape, list(zip(first.ravel().tolist(), second.ravel().tolist(), strict=True))

    @cached_property
    def operators(self) -> tuple[dict[Pauli, float], ...]:
        """The observables, by operator."""
        assert self.observables is not None
        found = []
        for entry in self.observables.entries:
            terms: dict[Pauli, float] = {}
            for label, coefficient in entry.items():
                operator = Pauli.of(label)
                terms[operator] = terms.get(operator, 0.0) + coefficient
            found.append(terms)
        return tuple(found)

    @cached_property
    def settings(self) -> list[MeasurementGroup]:
        """The measurements of an estimator's PUB: as few bases as a greedy search finds.

        Parameter sets that need the same operators share their bases.
        """
        wanted: dict[int, set[int]] = {}
        for number, entry in self.pairs[1]:
            wanted.setdefault(number, set()).add(entry)
        alike: dict[frozenset[int], list[int]] = {}
        for number, entries in wanted.items():
            alike.setdefault(frozenset(entries), []).append(number)
        return [
            MeasurementGroup(basis, operators, tuple(sets))
            for entries, sets in alike.items()
            for basis, operators in _grouped({p for e in entries for p in self.operators[e]})
        ]

    @property
    def executions(self) -> int:
        """How many bound circuits it runs."""
        if self.observables is None:
            return len(self.rows)
        return sum(len(setting.sets) for setting in self.settings)


def _grouped(operators: set[Pauli]) -> list[tuple[Pauli, frozenset[Pauli]]]:
    """Group operators that one basis measures; the widest choose their bases first."""
    bases: list[Pauli] = []
    members: list[set[Pauli]] = []
    for operator in sorted(operators, key=lambda p: (-p.support.bit_count(), p)):
        if not operator.support:
            continue  # the identity needs no measurement
        for number, basis in enumerate(bases):
            if basis.agrees(operator):
                bases[number] = basis | operator
                members[number].add(operator)
                break
        else:
            bases.append(operator)
            members.append({operator})
    return [(basis, frozenset(each)) for basis, each in zip(bases, members, strict=True)]


@dataclass(frozen=True, eq=False)
class Pubs:
    """What one call of a primitive submits; all of them have observables, or none has."""

    pubs: tuple[Pub, ...]
    mitigated: bool = False
    """Whether the device calibrates the readout and corrects expectation values by it."""

    @property
    def circuits(self) -> list[Any]:
        """Each PUB's circuit, with its parameters."""
        return [pub.circuit for pub in self.pubs]

    @property
    def support(self) -> int:
        """The qubits that its observables act on."""
        bases = (setting.basis.support for pub in self.pubs for setting in pub.settings)
        return reduce(or_, bases, 0)

    @property
    def executions(self) -> int:
        """How many circuits with the task's shots take as long as this does, rounded up."""
        seen = sum(pub.executions * pub.share for pub in self.pubs)
        return max(1, math.ceil(seen - 1e-9)) + (CALIBRATIONS if self.mitigated else 0)


is_circuits = True


def recognises(value: object) -> bool:
    """Whether the value is a set of PUBs."""
    return isinstance(value, Pubs)


def pack(payload: Pubs) -> bytes:
    """Encode the head, the circuits and the values."""
    circuits = qpy.pack(payload.circuits)
    head = {
        "pubs": [_form(pub) for pub in payload.pubs],
        "mitigated": payload.mitigated,
        "circuits": len(circuits),
    }
    words = document.write(head, WHAT)
    values = b"".join(pub.values.astype("<f8").tobytes() for pub in payload.pubs)
    return len(words).to_bytes(LENGTH, "little") + words + circuits + values


def _form(pub: Pub) -> dict[str, Any]:
    found = pub.observables
    terms = None if found is None else [list(entry.items()) for entry in found.entries]
    return {
        "values": list(pub.values.shape),
        "share": pub.share,
        "observables": None if found is None else {"shape": list(found.shape), "terms": terms},
    }


def unpack(data: bytes) -> Pubs:
    """Decode PUBs from untrusted bytes."""
    return _read(data, qpy.unpack)


def unpack_trusted(data: bytes) -> Pubs:
    """Decode PUBs from bytes that `pack` wrote."""
    return _read(data, qpy.unpack_trusted)


def _read(data: bytes, read_circuits: Any) -> Pubs:
    import numpy as np

    if len(data) > MOST_BYTES:
        raise PayloadRefused(f"{WHAT} have {len(data)} bytes; at most {MOST_BYTES} are allowed")
    begin = LENGTH + int.from_bytes(data[:LENGTH], "little")
    head = document.record(document.read(data[LENGTH:begin], WHAT), WHAT)
    forms = document.sequence(head.get("pubs"), WHAT, MOST_CIRCUITS)
    size = _whole(head.get("circuits"), "the length of the circuits", MOST_BYTES)
    circuits = read_circuits(data[begin : begin + size])
    if len(circuits) != len(forms):
        document.refuse(WHAT, f"there are {len(circuits)} circuits for {len(forms)} PUBs")
    floats = data[begin + size :]
    if len(floats) % 8:
        document.refuse(WHAT, "the parameter values are not whole 64-bit floats")
    values = np.frombuffer(floats, "<f8")
    if not np.isfinite(values).all():
        document.refuse(WHAT, "a parameter value is not a finite number")
    mitigated = head.get("mitigated", False)
    if not isinstance(mitigated, bool):
        document.refuse(f"{WHAT}, mitigated", "true or false is expected")
    made = Pubs(tuple(_pubs(forms, circuits, values)), mitigated)
    if len({pub.observables is None for pub in made.pubs}) > 1:
        document.refuse(WHAT, "some have observables and some have none; submit them apart")
    if mitigated and made.pubs[0].observables is None:
        document.refuse(WHAT, "only expectation values can be mitigated")
    return made


def _pubs(forms: list[Any], circuits: list[Any], values: NDArray[np.float64]) -> Iterator[Pub]:
    used = 0
    for number, (value, circuit) in enumerate(zip(forms, circuits, strict=True)):
        where = f"PUB {number}"
        form = document.record(value, where)
        shape = _shape(form.get("values"), f"{where}, the shape of its values")
        if not shape or shape[-1] != circuit.num_parameters:
            document.refuse(where, f"the circuit has {circuit.num_parameters} parameters")
        if not 0 < math.prod(shape[:-1]) <= MOST_SETS:
            document.refuse(where, f"1 to {MOST_SETS} parameter sets are expected")
        share = document.number(form.get("share", 1.0), f"{where}, share")
        if not 0 < share <= 1:
            document.refuse(where, f"its share of the shots is above 0 and at most 1, not {share}")
        end = used + math.prod(shape)
        if end > len(values):
            document.refuse(where, "there are fewer parameter values than its shape says")
        observables = _observables(form.get("observables"), circuit.num_qubits, where)
        pub = Pub(circuit, values[used:end].reshape(shape), share, observables)
        if observables is not None:
            _check_result(pub, observables, where)
        yield pub
        used = end
    if used != len(values):
        document.refuse(WHAT, "there are more parameter values than the shapes say")


def _check_result(pub: Pub, observables: ObservableArray, where: str) -> None:
    """Refuse shapes that do not fit each other, before an array of the result's size exists."""
    import numpy as np

    try:
        shape = np.broadcast_shapes(pub.values.shape[:-1], observables.shape)
    except ValueError:
        shapes = f"{pub.values.shape[:-1]} of its values and {observables.shape} of its observables"
        document.refuse(where, f"the shapes {shapes} do not fit each other")
    if math.prod(shape) > MOST_SETS:
        document.refuse(where, f"it asks for more than {MOST_SETS} expectation values")


def _observables(value: Any, qubits: int, where: str) -> ObservableArray | None:
    if value is None:
        return None
    where = f"{where}, observables"
    form = document.record(value, where)
    shape = _shape(form.get("shape"), where)
    entries = document.sequence(form.get("terms"), where, MOST_TERMS)
    if len(entries) != math.prod(shape) or not entries:
        document.refuse(where, f"there are {len(entries)} for the shape {list(shape)}")
    found = tuple(_terms(entry, qubits, where) for entry in entries)
    if sum(map(len, found)) > MOST_TERMS:
        document.refuse(where, f"there are more than {MOST_TERMS} terms")
    return ObservableArray(shape, found)


def _terms(entry: Any, qubits: int, where: str) -> dict[str, float]:
    terms: dict[str, float] = {}
    for term in document.sequence(entry, where, MOST_TERMS):
        if not isinstance(term, list) or len(term) != 2:
            document.refuse(where, f"a term is [label, coefficient], not {document.brief(term)}")
        label = document.text(term[0], where)
        if len(label) != qubits or set(label) - set("IXYZ"):
            letters = f"{qubits} of the letters I, X, Y and Z"
            document.refuse(where, f"a label has {letters}, not {document.brief(label)}")
        terms[label] = document.number(term[1], where)
    return terms


def _shape(value: Any, where: str) -> Shape:
    return tuple(_whole(each, where, MOST_BYTES) for each in document.sequence(value, where, 32))


def _whole(value: Any, where: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        document.refuse(where, f"an integer from 0 to {most} is expected: {document.brief(value)}")
    return value
