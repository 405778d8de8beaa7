"""A task's payload and answer as shapes that a page can draw, made in a process that may be killed.

Circuits become columns of gates, shots become counts, sample sets their best samples.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any

from qtide.backends.payloads.payload import Encoded, decode, decode_answer
from qtide.core.errors import PhaseError
from qtide.service.bulk import Done

MOST_QUBITS, MOST_COLUMNS = 24, 60
"""The part of a circuit that is drawn."""
MOST_COUNTS, MOST_SAMPLES, MOST_VARIABLES = 24, 8, 32
Gate = tuple[str, list[str], str]
"""The name of a gate, its qubits, and its parameters as text."""


def prepare() -> None:
    """Import what reads circuits and models: it opens files, which a confined process may not."""
    for name in ("dimod", "qiskit.qpy"):
        with suppress(ImportError):  # without them, the service has no such tasks either
            import_module(name)


def drawn(body: bytes) -> Done:
    """Describe a payload and its answer; the head says where one ends and the other begins."""
    head, _, rest = body.partition(b"\n")
    words = json.loads(head)
    size = words["payload"]
    found: dict[str, Any] = {"format": words["format"]}
    try:
        found |= _payload(decode(Encoded(words["format"], rest[:size]), trusted=True))
    except (PhaseError, ImportError) as error:
        found["payload_error"] = str(error)
    if words["answer_format"]:
        found["answer_format"] = words["answer_format"]
        try:
            found |= _answer(decode_answer(Encoded(words["answer_format"], rest[size:])))
        except (PhaseError, ImportError) as error:
            found["answer_error"] = str(error)
    return found, b""


def _payload(payload: Any) -> dict[str, Any]:
    circuits = getattr(payload, "circuits", payload)
    if isinstance(circuits, list | tuple) and circuits:
        first: Any = getattr(circuits[0], "circuit", circuits[0])
        if hasattr(first, "instructions"):
            gates = ((each.name, list(each.locus), _iqm(each.args)) for each in first.instructions)
            qubits = list(dict.fromkeys(q for each in first.instructions for q in each.locus))
            return {"circuits": len(circuits), "circuit": _columns(qubits, gates)}
        if hasattr(first, "find_bit"):
            names = [f"q{number}" for number in range(first.num_qubits)]
            return {"circuits": len(circuits), "circuit": _columns(names, _qiskit(first))}
    if hasattr(payload, "vartype"):
        size = {"variables": payload.num_variables, "couplings": payload.num_interactions}
        return {"model": size | {"vartype": payload.vartype.name}}
    if hasattr(payload, "seconds"):
        return {"burst": payload.seconds}
    return {}


def _qiskit(circuit: Any) -> Iterable[Gate]:
    for each in circuit.data:
        qubits = [f"q{circuit.find_bit(qubit).index}" for qubit in each.qubits]
        numbers = [_short(value) for value in each.operation.params]
        yield each.operation.name, qubits, ", ".join(numbers)


def _iqm(args: dict[str, Any]) -> str:
    return ", ".join(_short(value) for value in args.values() if isinstance(value, int | float))


def _short(value: Any) -> str:
    try:
        return f"{float(value):.3g}"
    except (TypeError, ValueError):
        return str(value)[:12]


def _columns(qubits: list[str], gates: Iterable[Gate]) -> dict[str, Any]:
    """Place each gate in the first column after those that share a qubit with it, as drawn."""
    rows = {name: number for number, name in enumerate(qubits)}
    free = [0] * len(qubits)
    placed: list[dict[str, Any]] = []
    number = hidden = 0
    for name, on, text in gates:
        number += 1
        at = [rows[each] for each in on]
        if not at:
            continue
        low, high = min(at), max(at)
        column = max(free[low : high + 1])
        free[low : high + 1] = [column + 1] * (high + 1 - low)
        if column < MOST_COLUMNS and high < MOST_QUBITS:
            placed.append({"name": name, "column": column, "qubits": at, "text": text})
        else:
            hidden += 1
    columns = min(MOST_COLUMNS, max(free, default=0))
    shown = qubits[:MOST_QUBITS]
    return {
        "qubits": shown,
        "all_qubits": len(qubits),
        "columns": columns,
        "gates": placed,
        "all_gates": number,
        "hidden": hidden,
    }


def _answer(answer: Any) -> dict[str, Any]:
    if isinstance(answer, list) and answer and hasattr(answer[0], "counts"):
        counts = Counter(answer[0].counts())
        bars = sorted(counts.most_common(MOST_COUNTS))
        total = counts.total()
        return {"counts": {"bars": bars, "outcomes": len(counts), "shots": total}}
    if hasattr(answer, "record"):
        best = answer.truncate(MOST_SAMPLES, sorted_by="energy")
        names = list(best.variables)[:MOST_VARIABLES]
        rows = [
            {
                "energy": float(row.energy),
                "times": int(row.num_occurrences),
                "values": [int(row.sample[name]) for name in names],
            }
            for row in best.data(sorted_by="energy")
        ]
        return {"samples": {"variables": [str(name)[:20] for name in names], "rows": rows}}
    text = json.dumps(answer, default=str)
    return {"value": text if len(text) <= 2000 else f"{text[:2000]}…"}
