"""Qiskit's circuits in Qiskit's own format, the fastest to load."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from qtide.backends.payloads.guard import (
    MOST_BYTES,
    MOST_CIRCUITS,
    MOST_INSTRUCTIONS,
    MOST_QUBITS,
    guarded,
)
from qtide.backends.payloads.payload import PayloadRefused, is_of

HEADER = 18
"""Bytes: the word QISKIT, four of versions, and the number of circuits in eight."""
OLDEST = 13
"""The oldest QPY version accepted: earlier ones could carry code."""


def recognises(value: Any) -> bool:
    """A Qiskit circuit, or a list that begins with one."""
    one = value[0] if isinstance(value, list | tuple) and value else value
    return is_of(one, "qiskit", "QuantumCircuit")


def pack(circuits: Any) -> bytes:
    """A circuit, or a list of them."""
    from qiskit import QuantumCircuit, qpy

    batch = list(circuits) if isinstance(circuits, list | tuple) else [circuits]
    for number, circuit in enumerate(batch):
        if not isinstance(circuit, QuantumCircuit):
            kind = type(circuit).__name__
            raise PayloadRefused(f"circuit {number}: a QuantumCircuit is expected, not {kind}")
    file = BytesIO()
    qpy.dump(batch, file)
    return file.getvalue()


def unpack(data: bytes) -> Any:
    """The list of `qiskit.QuantumCircuit` again, from untrusted bytes."""
    _check_header(data)
    import qiskit.qpy  # noqa: F401 - otherwise every child would import it again

    return unpack_trusted(guarded(_again, data, "the QPY file"))


def unpack_trusted(data: bytes) -> Any:
    """The list of circuits from bytes that `pack` made."""
    from qiskit import qpy

    return qpy.load(BytesIO(data))


def check_size(circuits: Any) -> None:
    """Refuse batches that are larger than the limits."""
    _check_count(len(circuits))
    for number, circuit in enumerate(circuits):
        for have, most, noun in (
            (circuit.num_qubits, MOST_QUBITS, "qubits"),
            (circuit.num_clbits, MOST_QUBITS, "classical bits"),
            (len(circuit.data), MOST_INSTRUCTIONS, "instructions"),
        ):
            if have > most:
                raise PayloadRefused(
                    f"circuit {number} has {have} {noun}; at most {most} are allowed"
                )


def _check_count(circuits: int) -> None:
    if not 0 < circuits <= MOST_CIRCUITS:
        raise PayloadRefused(f"there are {circuits} circuits; 1 to {MOST_CIRCUITS} can be read")


def _again(data: bytes) -> bytes:
    circuits = unpack_trusted(data)
    check_size(circuits)
    return pack(circuits)


def _check_header(data: bytes) -> None:
    if len(data) > MOST_BYTES:
        raise PayloadRefused(
            f"the QPY file has {len(data)} bytes; at most {MOST_BYTES} are allowed"
        )
    if data[:6] != b"QISKIT" or len(data) < HEADER:
        raise PayloadRefused("the QPY file does not begin like one")
    if data[6] < OLDEST:
        raise PayloadRefused(f"the QPY file has version {data[6]}; the oldest accepted is {OLDEST}")
    _check_count(int.from_bytes(data[10:HEADER]))  # before it is read, which takes its time
