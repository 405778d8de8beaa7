"""The steps of a crate: a run's phases, with their times, resources and results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from qtide.backends.payloads.payload import encode_answer
from qtide.core.errors import PhaseError
from qtide.core.ledger import Interval
from qtide.core.values import Packed
from qtide.interfaces.export.crate_graph import NUMBER, CrateGraph, Ref, text_of
from qtide.interfaces.export.crate_source import devices_of
from qtide.interfaces.export.data_flow import PhaseInputs, data_flow
from qtide.programs.journal import JournalRecord, records
from qtide.programs.replay import choice_of
from qtide.runs.driver import plain
from qtide.runs.folder import RunFolder
from qtide.runs.open_site import is_virtual

UNKNOWN = "the result can only be read with the packages of its program"


class CrateSteps:
    """Adds a run's phases to a crate: one step per kind, one action per execution."""

    def __init__(
        self,
        graph: CrateGraph,
        history: RunHistory,
        workflow: Ref,
        agent: Ref,
        texts: dict[str, str],
        arguments: Mapping[str, Ref],
    ) -> None:
        self.files: list[Ref] = []
        """Files of the results."""
        self._arguments = arguments
        self._flow = data_flow(history.run)
        self._results: dict[str, Ref] = {}
        """The latest result of each phase, by key."""
        self._graph = graph
        self._history = history
        self._workflow = workflow
        self._agent = agent
        self._texts = texts
        self._steps: dict[tuple[str, str], Ref] = {}
        self._functions: dict[str, Ref] = {}
        lanes = {each.lane for each in history.spans if each.what == "busy"}
        names = [lane.removeprefix("qpu/") for lane in lanes if lane.startswith("qpu/")]
        self._devices = devices_of(history.run, names)

    def add(self, execution: Execution) -> StepRefs:
        """Add one execution of a phase: the action itself and the engine's control action."""
        tool = self._tool(execution)
        step = self._step(execution, tool)
        action = self._action(execution, tool)
        control = self._graph.add(
            f"#control-{execution.number}",
            "ControlAction",
            name=f"Phase {execution.key}",
            instrument=step,
            object=action,
        )
        return StepRefs(action, control)

    def _tool(self, execution: Execution) -> Ref:
        """Add the functions the nodes ran, or the device."""
        if execution.quantum:
            names = [lane.removeprefix("qpu/") for lane in execution.lanes]
            tool = self._device(names[0] if names else self._history.run.spec.qpu)
        else:
            label = execution.span.label
            if label not in self._functions:
                self._functions[label] = self._graph.add(
                    f"#functions-{len(self._functions) + 1}",
                    "SoftwareApplication",
                    name=label,
                    description="functions of the program, on compute nodes",
                )
            tool = self._functions[label]
        self._graph.extend(self._workflow, hasPart=[tool])
        return tool

    def _device(self, name: str) -> Ref:
        known = self._devices.get(name, {"kind": name, "properties": {}})
        identity = f"#device-{_word(name)}"
        properties = known["properties"] | {"kind": known["kind"]}
        values = [
            self._graph.value(f"{identity}-{_word(each)}", each, text_of(value))
            for each, value in properties.items()
        ]
        return self._graph.add(
            identity,
            "SoftwareApplication",
            name=name,
            description="the device that answered payloads",
            additionalProperty=values,
        )

    def _step(self, execution: Execution, tool: Ref) -> Ref:
        """Add a step; phases of the same kind and label share one, since programs loop."""
        lane, label = execution.span.lane, execution.span.label
        if (lane, label) not in self._steps:
            number = len(self._steps) + 1
            self._steps[lane, label] = self._graph.add(
                f"#step-{number}",
                "HowToStep",
                name=f"{lane} {label}",
                position=number,
                workExample=tool,
            )
            self._graph.extend(self._workflow, step=[self._steps[lane, label]])
        return self._steps[lane, label]

    def _action(self, execution: Execution, tool: Ref) -> Ref:
        span, moment = execution.span, self._history.moment
        places = ", ".join(lane.partition("/")[2] for lane in execution.lanes)
        told = f"{span.lane} {span.label}{f' on {places}' if places else ''}"
        given = self._flow.get(execution.key, PhaseInputs())
        if given.computed:
            told += f", with an input that the program made after phase {', '.join(given.phases)}"
        status = "FailedActionStatus" if execution.failed else "CompletedActionStatus"
        return self._graph.add(
            f"#phase-{execution.number}",
            "CreateAction",
            name=f"Phase {execution.key}: {span.label}",
            description=f"{told}: {execution.why}" if execution.why else told,
            instrument=tool,
            agent=self._agent,
            startTime=moment(span.start),
            endTime=moment(span.end),
            actionStatus=f"http://schema.org/{status}",
            object=[
                *(self._arguments[name] for name in given.arguments if name in self._arguments),
                *(self._results[key] for key in given.phases if key in self._results),
            ],
            result=self._result(execution),
            resourceUsage=self._usage(execution),
        )

    def _result(self, execution: Execution) -> list[Ref]:
        if execution.record is None:
            return []
        name = f"results/{execution.number}.json"
        self._texts[name] = json.dumps(self._history.result(execution), ensure_ascii=False)
        file = self._graph.add(
            name,
            "File",
            name=f"{execution.number}.json",
            description=f"the outcome of phase {execution.key}",
            encodingFormat="application/json",
        )
        self.files.append(file)
        self._results[execution.key] = file
        return [file]

    def _usage(self, execution: Execution) -> list[Ref]:
        owner, noun = f"phase-{execution.number}", "QPU" if execution.quantum else "node"
        seconds = sum(each.seconds for each in execution.busy)
        return [
            self._graph.figure(owner, f"{noun}s", len(execution.lanes), NUMBER),
            self._graph.figure(owner, f"{noun}-seconds busy", seconds),
        ]


class StepRefs(NamedTuple):
    """References to the action of an execution and to the engine's control action."""

    action: Ref
    control: Ref


@dataclass(frozen=True)
class Execution:
    """One execution of a phase; an open-ended one was left by a killed driver."""

    number: int
    key: str
    span: Interval
    busy: Sequence[Interval] = ()
    """Spans in which nodes or devices worked for it."""
    record: JournalRecord | None = None
    why: str = ""
    """Why this phase and not its equivalent was run, if there was a choice."""

    @property
    def failed(self) -> bool:
        """Whether the execution produced no result."""
        return self.span.open_ended or self.record is None or self.record.failed

    @property
    def quantum(self) -> bool:
        """Whether the execution ran on a QPU."""
        return self.span.lane == "quantum"

    @property
    def lanes(self) -> list[str]:
        """The nodes or devices that worked for it."""
        return sorted({each.lane for each in self.busy})


@dataclass
class RunHistory:
    """The ledger and the journal of a run, read once."""

    run: RunFolder
    spans: list[Interval] = field(init=False)

    def __post_init__(self) -> None:
        """Read the ledger and the journal."""
        self.spans = self.run.intervals()
        self._records = records(self.run.journal)
        self._scale = self.run.spec.time_scale
        self.is_virtual = is_virtual(self.run.spec)

    def moment(self, clock: float) -> str:
        """Convert a time of the run's clock to a date; virtual time starts at run creation."""
        seconds = self.run.created + clock if self.is_virtual else clock * self._scale
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")

    def executions(self) -> Iterator[Execution]:
        """Yield the executions of all phases in order of their start."""
        phases = [each for each in self.spans if each.what == "phase"]
        phases.sort(key=lambda span: span.start)
        last = {span.key or str(number): number for number, span in enumerate(phases, 1)}
        for number, span in enumerate(phases, 1):
            key = span.key or str(number)  # ledgers of older runs have no keys
            record = self._records.get(key) if last[key] == number else None
            choice = self._records.get(choice_of(key))
            why = "" if choice is None else str(choice.outcome.get("why"))
            yield Execution(number, key, span, self._busy(span), record, why)

    def result(self, execution: Execution) -> Any:
        """Return the result of a phase in a form that JSON can represent."""
        if execution.record is None:
            return None
        try:
            return _readable(self.run.values.unpack(Packed.from_json(execution.record.outcome)))
        except Exception:  # the program or one of its packages may be gone
            return UNKNOWN

    def _busy(self, phase: Interval) -> list[Interval]:
        """Find the work of a phase: spans with one of its names that lie within it."""
        names = set(phase.label.replace(" instead of ", " + ").split(" + "))
        names |= {name.partition(" × ")[2] for name in names}
        lanes = "qpu/" if phase.lane == "quantum" else "node/"
        # compare midpoints: work may end as the next phase begins, and clocks differ slightly
        during = (each for each in self.spans if phase.start <= _middle(each) <= phase.end)
        return [
            each
            for each in during
            if each.what == "busy" and each.lane.startswith(lanes) and each.label in names
        ]


def _readable(value: Any) -> Any:
    """Convert a value to JSON data; encode device answers as the service sends them."""
    with suppress(PhaseError, ValueError):  # not a device's answer
        return json.loads(encode_answer(value).data)
    return [_readable(each) for each in value] if isinstance(value, list) else plain(value)


def _middle(span: Interval) -> float:
    return (span.start + span.end) / 2


def _word(text: str) -> str:
    return "".join(each if each.isalnum() else "-" for each in text)
