"""The metadata of a crate: entities that refer to each other, as one JSON-LD document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from qtide.backends.payloads.encoded import encode_answer
from qtide.core.errors import PhaseError
from qtide.core.ledger import Interval
from qtide.core.metrics import measure
from qtide.core.values import Packed
from qtide.interfaces.export.crate import described
from qtide.programs.journal import JournalRecord, records
from qtide.programs.replay import choice_of
from qtide.runs.driver import plain
from qtide.runs.folder import RunFolder
from qtide.runs.open_site import is_virtual

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


class CrateGraph:
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


SECOND = "https://qudt.org/vocab/unit/SEC"
NUMBER = "https://qudt.org/vocab/unit/NUM"
ABOUT = "https://pypi.org/project/qtide/#"
"""What the identities of our figures begin with."""


def usage_of_run(graph: CrateGraph, spans: Iterable[Interval]) -> list[Ref]:
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


def usage_of(graph: CrateGraph, execution: Execution) -> list[Ref]:
    """What one phase took."""
    place = f"phase-{execution.number}"
    noun, lanes = ("QPU", "qpu/") if execution.quantum else ("node", "node/")
    number, seconds = len(execution.lanes), execution.seconds(lanes)
    return [
        _figure(graph, place, f"{noun}s", number, NUMBER),
        _figure(graph, place, f"{noun}-seconds busy", seconds, SECOND),
    ]


def _figure(graph: CrateGraph, place: str, name: str, value: float, unit: str) -> Ref:
    word = name.lower().replace(" ", "-")
    terms = {"propertyID": f"{ABOUT}{word}", "unitCode": unit}
    return graph.value(f"#{place}-{word}", name, round(value, 6), **terms)


UNKNOWN = "the result cannot be read outside of the program"


@dataclass(frozen=True)
class Execution:
    """One try of a phase; a driver that was killed leaves one that did not end."""

    number: int
    key: str
    span: Interval
    busy: Sequence[Interval] = ()
    record: JournalRecord | None = None
    why: str = ""
    """Why this and not its equivalent was run, if there was a choice."""

    @property
    def failed(self) -> bool:
        """Whether it gave no result."""
        return self.span.open_ended or self.record is None or self.record.failed

    @property
    def quantum(self) -> bool:
        """Whether it ran on a QPU."""
        return self.span.lane == "quantum"

    def seconds(self, lanes: str) -> float:
        """How long nodes, or devices, worked for it."""
        return sum(each.seconds for each in self.busy if each.lane.startswith(lanes))

    @property
    def lanes(self) -> list[str]:
        """The nodes and devices that worked for it."""
        return sorted({each.lane for each in self.busy})


@dataclass
class History:
    """Reads a run's folder."""

    run: RunFolder
    spans: list[Interval] = field(init=False)

    def __post_init__(self) -> None:
        """Read the ledger and the journal once."""
        self.spans = self.run.intervals()
        self._records = records(self.run.journal)
        self._scale = self.run.spec.time_scale
        self.is_virtual = is_virtual(self.run.spec)

    def moment(self, clock: float) -> str:
        """A time of the run's clock by the calendar; virtual time begins when it was created."""
        seconds = self.run.created + clock if self.is_virtual else clock * self._scale
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")

    def executions(self) -> Iterator[Execution]:
        """All tries of phases, in the order in which they began."""
        phases = sorted((each for each in self.spans if each.what == "phase"), key=_began)
        last = {span.key or str(number): number for number, span in enumerate(phases, 1)}
        for number, span in enumerate(phases, 1):
            key = span.key or str(number)  # the ledgers of older runs have no keys
            record = self._records.get(key) if last[key] == number else None
            yield Execution(number, key, span, self._busy(span), record, self._why(key))

    def result(self, execution: Execution) -> Any:
        """What a phase gave, in a form that JSON can represent."""
        if execution.record is None:
            return None
        try:
            return _readable(self.run.values.unpack(Packed.from_json(execution.record.outcome)))
        except Exception:  # the program, or a package of it, may be gone
            return UNKNOWN

    def _why(self, key: str) -> str:
        choice = self._records.get(choice_of(key))
        return "" if choice is None else str(choice.outcome["why"])

    def _busy(self, phase: Interval) -> list[Interval]:
        """What worked during a phase, and bears a name that the phase has."""
        names = set(phase.label.replace(" instead of ", " + ").split(" + "))
        names |= {name.partition(" × ")[2] for name in names}
        lanes = "qpu/" if phase.lane == "quantum" else "node/"
        within = (each for each in self.spans if phase.start <= _middle(each) <= phase.end)
        return [
            each
            for each in within
            if each.what == "busy" and each.lane.startswith(lanes) and each.label in names
        ]


def _readable(value: Any) -> Any:
    """In a form that JSON can represent: the answers of devices as the service sends them."""
    with suppress(PhaseError, ValueError):  # it is no such answer
        return json.loads(encode_answer(value).data)
    return [_readable(each) for each in value] if isinstance(value, list) else plain(value)


def _middle(span: Interval) -> float:
    """What ends as the next thing begins belongs to one of them; clocks may differ a little."""
    return (span.start + span.end) / 2


def _began(span: Interval) -> float:
    return span.start


class Performed(NamedTuple):
    """What was run, and the engine's part in it."""

    action: Ref
    control: Ref


class Steps:
    """Adds phases, and remembers the files of their results."""

    def __init__(
        self,
        graph: CrateGraph,
        history: History,
        workflow: Ref,
        agent: Ref,
        texts: dict[str, str],
    ) -> None:
        self.files: list[Ref] = []
        self._graph = graph
        self._history = history
        self._workflow = workflow
        self._agent = agent
        self._texts = texts
        self._steps: dict[tuple[str, str], Ref] = {}
        self._tools: dict[str, Ref] = {}
        lanes = {each.lane for each in history.spans if each.what == "busy"}
        names = [lane.removeprefix("qpu/") for lane in lanes if lane.startswith("qpu/")]
        self._devices = described(history.run, names)

    def add(self, phase: Execution) -> Performed:
        """One try of a phase."""
        tool = self._tool(phase)
        step = self._step(phase, tool)
        action = self._action(phase, tool)
        control = self._graph.add(
            f"#control-{phase.number}",
            "ControlAction",
            name=f"Phase {phase.key}",
            instrument=step,
            object=action,
        )
        return Performed(action, control)

    def _tool(self, phase: Execution) -> Ref:
        """The functions that nodes ran, or the device."""
        if phase.quantum:
            names = [lane.removeprefix("qpu/") for lane in phase.lanes]
            tool = self._device(names[0] if names else self._history.run.spec.qpu)
        else:
            tool = self._functions(phase.span.label)
        self._graph.extend(self._workflow, hasPart=[tool])
        return tool

    def _functions(self, label: str) -> Ref:
        if label not in self._tools:
            self._tools[label] = self._graph.add(
                f"#functions-{len(self._tools) + 1}",
                "SoftwareApplication",
                name=label,
                description="functions of the program, on compute nodes",
            )
        return self._tools[label]

    def _device(self, name: str) -> Ref:
        known = self._devices.get(name, {"kind": name, "properties": {}})
        identity = f"#device-{_word(name)}"
        properties = known["properties"] | {"kind": known["kind"]}
        values = [
            self._graph.value(f"{identity}-{_word(each)}", each, _text(value))
            for each, value in properties.items()
        ]
        return self._graph.add(
            identity,
            "SoftwareApplication",
            name=name,
            description="the device that answered payloads",
            additionalProperty=values,
        )

    def _step(self, phase: Execution, tool: Ref) -> Ref:
        """The same step for all phases that ask for the same: programs loop."""
        what = (phase.span.lane, phase.span.label)
        if what not in self._steps:
            number = len(self._steps) + 1
            told = {"name": " ".join(what), "position": number, "workExample": tool}
            self._steps[what] = self._graph.add(f"#step-{number}", "HowToStep", **told)
            self._graph.extend(self._workflow, step=[self._steps[what]])
        return self._steps[what]

    def _action(self, phase: Execution, tool: Ref) -> Ref:
        span, moment = phase.span, self._history.moment
        places = ", ".join(lane.partition("/")[2] for lane in phase.lanes)
        told = f"{span.lane} {span.label}{f' on {places}' if places else ''}"
        completed = "FailedActionStatus" if phase.failed else "CompletedActionStatus"
        return self._graph.add(
            f"#phase-{phase.number}",
            "CreateAction",
            name=f"Phase {phase.key}: {span.label}",
            description=f"{told}: {phase.why}" if phase.why else told,
            instrument=tool,
            agent=self._agent,
            startTime=moment(span.start),
            endTime=moment(span.end),
            actionStatus=f"http://schema.org/{completed}",
            result=self._result(phase),
            resourceUsage=usage_of(self._graph, phase),
        )

    def _result(self, phase: Execution) -> list[Ref]:
        if phase.record is None:
            return []
        name = f"results/{phase.number}.json"
        found = self._history.result(phase)
        self._texts[name] = json.dumps(found, ensure_ascii=False)
        told = f"the outcome of phase {phase.key}"
        kind = "application/json"
        self.files.append(
            self._graph.add(
                name, "File", name=f"{phase.number}.json", description=told, encodingFormat=kind
            )
        )
        return [self.files[-1]]


def _word(text: str) -> str:
    return "".join(each if each.isalnum() else "-" for each in text)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
