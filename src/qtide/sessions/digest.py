"""Digests of calls: whether a script that is started again makes the same call as before."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

SETS = (b"\x8f", b"\x91")
"""Opcodes of pickled sets, whose order differs from process to process."""


def digest(value: Any) -> str:
    """A short word for a value, the same in every process."""
    return blake2b(_bytes(value), digest_size=6).hexdigest()


def function_name(function: Callable[..., Any]) -> str:
    """What a function is called in a script."""
    return str(getattr(function, "__qualname__", None) or type(function).__name__)


def _bytes(value: Any) -> bytes:
    if hasattr(value, "qregs") and hasattr(value, "data"):  # a circuit, which has a unique name
        return _bytes([_gate(value, each) for each in value.data])
    if isinstance(value, list | tuple) and value and hasattr(value[0], "qregs"):
        return b"".join(map(_bytes, value))
    data = _pickled(value)
    return data if not any(each in data for each in SETS) else _ordered(value)


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        from qtide.jobs.by_value import dumps

        return dumps(value)


def _ordered(value: Any) -> bytes:
    """Elements of sets in the order of their digests; what is no container, as it is pickled."""
    if isinstance(value, set | frozenset):
        return b"{" + b",".join(sorted(_bytes(each) for each in value)) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(_bytes(each) for each in value) + b"]"
    if isinstance(value, dict):
        return b"(" + b",".join(_bytes(key) + _bytes(each) for key, each in value.items()) + b")"
    return _pickled(value)


def _gate(circuit: Any, instruction: Any) -> tuple[Any, ...]:
    places = [circuit.find_bit(bit).index for bit in (*instruction.qubits, *instruction.clbits)]
    return instruction.operation.name, [str(each) for each in instruction.operation.params], places
