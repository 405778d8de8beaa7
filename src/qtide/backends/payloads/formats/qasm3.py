"""OpenQASM 3, which any language can write. It is parsed to circuits, which travel on as QPY."""

from __future__ import annotations

from functools import cache
from typing import Any

from qtide.backends.payloads import document
from qtide.backends.payloads.formats import qpy
from qtide.backends.payloads.guard import MOST_CIRCUITS, guarded, plain
from qtide.backends.payloads.payload import PayloadRefused

WHAT = "the list of OpenQASM 3 texts"


def recognises(value: Any) -> bool:
    """A text, or a list that begins with one."""
    one = value[0] if isinstance(value, list | tuple) and value else value
    return isinstance(one, str)


def pack(texts: Any) -> bytes:
    """A text, or a list of them."""
    batch = [texts] if isinstance(texts, str) else list(texts)
    for number, text in enumerate(batch):
        _check_text(text, number)
    return document.write(batch, WHAT)


def unpack(data: bytes) -> Any:
    """The list of `qiskit.QuantumCircuit` that the texts describe."""
    texts = document.sequence(document.read(data, WHAT), WHAT, MOST_CIRCUITS)
    for number, text in enumerate(texts):
        _check_text(text, number)
    _warm_up()
    return qpy.unpack_trusted(guarded(_circuits, data, "the OpenQASM 3"))


def _circuits(data: bytes) -> bytes:
    circuits = [_circuit(text, i) for i, text in enumerate(document.read(data, WHAT))]
    qpy.check_size(circuits)
    return qpy.pack(circuits)


def _circuit(text: str, number: int) -> Any:
    from qiskit import qasm3

    try:
        return qasm3.loads(text)
    except Exception as error:
        raise PayloadRefused(f"circuit {number} is not valid OpenQASM 3: {plain(error)}") from None


def _check_text(text: Any, number: int) -> None:
    if not isinstance(text, str):
        document.refuse(f"circuit {number}", f"a text is expected, not {document.brief(text)}")


@cache
def _warm_up() -> None:
    """Build the parser's tables, which its first use does, here and not in every child."""
    from qiskit import qasm3

    qasm3.loads("OPENQASM 3.0;")
