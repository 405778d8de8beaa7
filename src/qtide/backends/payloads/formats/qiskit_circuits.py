"""Qiskit circuits, in QPY, Qiskit's own format, or as OpenQASM 2 or 3.

QPY loads fastest. OpenQASM, which any language can write, is parsed into circuits, which are then
sent on as QPY. All readers are Qiskit's, so `guard` reads untrusted bytes in a child process.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
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


class QasmFormat:
    """An OpenQASM text of one version, or a list of them."""

    is_circuits = True

    def __init__(self, version: int) -> None:
        self._version = version
        self._name = f"OpenQASM {version}"
        self._what = f"the list of {self._name} texts"

    def recognises(self, value: Any) -> bool:
        """Whether the value is a text of this version, or a list that begins with one.

        A text that does not state its version counts as OpenQASM 3, whose texts need not.
        """
        one = value[0] if isinstance(value, list | tuple) and value else value
        return isinstance(one, str) and (_is_version_2(one) == (self._version == 2))

    def pack(self, texts: Any) -> bytes:
        """Encode one or several texts as a JSON list."""
        batch = [texts] if isinstance(texts, str) else list(texts)
        _check_texts(batch)
        return document.write(batch, self._what)

    def unpack(self, data: bytes) -> Any:
        """Decode the texts into a list of `qiskit.QuantumCircuit`."""
        texts = document.sequence(document.read(data, self._what), self._what, MOST_CIRCUITS)
        _check_texts(texts)
        reader(self._version)
        return qpy.unpack_trusted(guarded(self._parsed, data, f"the {self._name}"))

    def _parsed(self, data: bytes) -> bytes:
        """Parse the texts; return the circuits as QPY."""
        read = reader(self._version)
        circuits = []
        for number, text in enumerate(document.read(data, self._what)):
            try:
                circuits.append(read(text))
            except Exception as error:
                raise PayloadRefused(
                    f"circuit {number} is not valid {self._name}: {_reason(error)}"
                ) from None
        _check_size(circuits)
        return qpy.pack(circuits)


qpy = QpyFormat()
qasm2 = QasmFormat(2)
qasm3 = QasmFormat(3)


def _reason(error: Exception) -> str:
    """What a reader says; the parser of version 3 has no words, but the token it stumbled over."""
    stumble: Any = next(iter(getattr(error.__cause__, "args", ())), None)
    token = getattr(stumble, "offendingToken", None)
    if token is None or str(error):
        return plain_message(error)
    what = "it ends" if token.text == "<EOF>" else f"{document.brief(token.text)} is not expected"
    return plain_message(ValueError(f"{what} in line {token.line}, column {token.column + 1}"))


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


def _is_version_2(text: str) -> bool:
    """Whether a text states that it is OpenQASM 2; comments may come first."""
    return re.match(r"(\s|//[^\n]*(\n|$))*OPENQASM\s+2", text) is not None


@cache
def reader(version: int) -> Callable[[str], Any]:
    """Qiskit's reader of a version; the first use builds its tables, once for all child processes.

    OpenQASM 2 may include no file but the standard `qelib1.inc`, which the reader has built in.
    """
    if version == 2:
        from qiskit import qasm2 as old

        return partial(
            old.loads, include_path=(), custom_instructions=old.LEGACY_CUSTOM_INSTRUCTIONS
        )
    from qiskit.qasm3 import loads

    loads("OPENQASM 3.0;")
    read: Callable[[str], Any] = loads
    return read
