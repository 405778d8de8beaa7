"""Resources that a run or a phase used, as values of the crate, each with its unit."""

from __future__ import annotations

from collections.abc import Iterable

from qtide.export.crate.graph import Graph, Ref
from qtide.export.crate.history import Execution
from qtide.ledger.ledger import Interval
from qtide.ledger.metrics import measure

SECOND = "https://qudt.org/vocab/unit/SEC"
NUMBER = "https://qudt.org/vocab/unit/NUM"
ABOUT = "https://pypi.org/project/qtide/#"
"""What the identities of our figures begin with."""


def usage_of_run(graph: Graph, spans: Iterable[Interval]) -> list[Ref]:
    """What all of it took."""
    found = measure(spans)
    seconds = {
        "node-seconds held": found.nodes_held,
        "node-seconds busy": found.nodes_busy,
        "node-seconds starting": found.nodes_starting,
        "QPU-seconds busy": found.qpu_busy,
        "slot-seconds held": found.slots_held,
        "seconds in queues": found.queue,
    }
    return [_figure(graph, "run", name, each, SECOND) for name, each in seconds.items()]


def usage_of(graph: Graph, execution: Execution) -> list[Ref]:
    """What one phase took."""
    place = f"phase-{execution.number}"
    noun, lanes = ("QPU", "qpu/") if execution.quantum else ("node", "node/")
    number, seconds = len(execution.lanes), execution.seconds(lanes)
    return [
        _figure(graph, place, f"{noun}s", number, NUMBER),
        _figure(graph, place, f"{noun}-seconds busy", seconds, SECOND),
    ]


def _figure(graph: Graph, place: str, name: str, value: float, unit: str) -> Ref:
    word = name.lower().replace(" ", "-")
    terms = {"propertyID": f"{ABOUT}{word}", "unitCode": unit}
    return graph.value(f"#{place}-{word}", name, round(value, 6), **terms)
