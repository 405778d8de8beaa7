"""The steps of a crate: each phase with its tool, its times, its resources and its result."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from qtide.export.crate.device import described
from qtide.export.crate.graph import Graph, Ref
from qtide.export.crate.history import Execution, History
from qtide.export.crate.usage import usage_of


class Performed(NamedTuple):
    """What was run, and the engine's part in it."""

    action: Ref
    control: Ref


class Steps:
    """Adds phases, and remembers the files of their results."""

    def __init__(
        self,
        graph: Graph,
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
