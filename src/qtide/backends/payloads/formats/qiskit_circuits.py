"""Qiskit circuits, in QPY, Qiskit's own format, or as OpenQASM 3.

QPY loads fastest. OpenQASM 3, which any language can write, is parsed into circuits, which are then
sent on as QPY. Both readers are Qiskit's, so `guard` reads untrusted bytes in a child process.
"""

from __future__ import annotations

from functools import cache
from io import BytesIO
from typing import Any

from qtide.backends.payloads import document
from qtide.backends.payloads.guard import (
    MOST_BYTES,
    MOST_CIRCUITS,
    MOST_INSTRUCTIONS,
    MOST_QUBITS,
    guarded,
    plain_message,
)
from qtide.backends.payloads.payload import PayloadRefused, is_of

HEADER = 18
"""Bytes of a QPY file's header: the word QISKIT, 4 bytes of versions, 8 of the circuit count."""
OLDEST = 13
"""The oldest QPY version accepted: earlier versions could carry code."""


class QpyFormat:
    """A `qiskit.QuantumCircuit`, or a list of them."""

    is_circuits = True

    def recognises(self, value: Any) -> bool:
        """Whether the value is a Qiskit circuit, or a list that begins with one."""
        one = value[0] if isinstance(value, list | tuple) and value else value
        return is_of(one, "qiskit", "QuantumCircuit")

    def pack(self, circuits: Any) -> bytes:
        """Encode one or several circuits as a QPY file."""
        from qiskit import QuantumCircuit
        from qiskit.qpy import dump

        batch = list(circuits) if isinstance(circuits, list | tuple) else [circuits]
        for number, circuit in enumerate(batch):
            if not isinstance(circuit, QuantumCircuit):
                kind = type(circuit).__name__
                raise PayloadRefused(f"circuit {number}: a QuantumCircuit is expected, not {kind}")
        file = BytesIO()
        dump(batch, file)
        return file.getvalue()

    def unpack(self, data: bytes) -> Any:
        """Decode a list of circuits from untrusted bytes."""
        if len(data) > MOST_BYTES:
            raise PayloadRefused(
                f"the QPY file has {len(data)} bytes; at most {MOST_BYTES} are allowed"
            )
        if data[:6] != b"QISKIT" or len(data) < HEADER:
            raise PayloadRefused("the QPY file does not begin like one")
        if data[6] < OLDEST:
            raise PayloadRefused(
                f"the QPY file has version {data[6]}; the oldest accepted is {OLDEST}"
            )
        _check_count(int.from_bytes(data[10:HEADER]))  # before reading a long file
        import qiskit.qpy  # noqa: F401 - otherwise every child process would import it again

        return self.unpack_trusted(guarded(self._checked, data, "the QPY file"))

    def unpack_trusted(self, data: bytes) -> Any:
        """Decode a list of circuits from bytes that `pack` wrote."""
        from qiskit.qpy import load

        return load(BytesIO(data))

    def _checked(self, data: bytes) -> bytes:
        circuits = self.unpack_trusted(data)
        _check_size(circuits)
        return self.pack(circuits)


class Qasm3Format:
    """An OpenQASM 3 text, or a list of them."""

    is_circuits = True
    _what = "the list of OpenQASM 3 texts"

    def recognises(self, value: Any) -> bool:
        """Whether the value is a string, or a list that begins with one."""
        one = value[0] if isinstance(value, list | tuple) and value else value
        return isinstance(one, str)

    def pack(self, texts: Any) -> bytes:
        """Encode one or several texts as a JSON list."""
        batch = [texts] if isinstance(texts, str) else list(texts)
        _check_texts(batch)
        return document.write(batch, self._what)

    def unpack(self, data: bytes) -> Any:
        """Decode the texts into a list of `qiskit.QuantumCircuit`."""
        texts = document.sequence(document.read(data, self._what), self._what, MOST_CIRCUITS)
        _check_texts(texts)
        _build_parser_tables()
        return qpy.unpack_trusted(guarded(self._parsed, data, "the OpenQASM 3"))

    def _parsed(self, data: bytes) -> bytes:
        """Parse the texts; return the circuits as QPY."""
        from qiskit.qasm3 import loads

        circuits = []
        for number, text in enumerate(document.read(data, self._what)):
            try:
                circuits.append(loads(text))
            except Exception as error:
                raise PayloadRefused(
                    f"circuit {number} is not valid OpenQASM 3: {plain_message(error)}"
                ) from None
        _check_size(circuits)
        return qpy.pack(circuits)


qpy = QpyFormat()
qasm3 = Qasm3Format()


def _check_size(circuits: Any) -> None:
    """Refuse a batch that exceeds the limits."""
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


def _check_texts(texts: list[Any]) -> None:
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            document.refuse(f"circuit {number}", f"a text is expected, not {document.brief(text)}")


@cache
def _build_parser_tables() -> None:
    """Make the parser build its tables, as on first use, here and not in every child process."""
    from qiskit.qasm3 import loads

    loads("OPENQASM 3.0;")
