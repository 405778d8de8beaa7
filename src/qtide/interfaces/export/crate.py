"""Exports a run as a Provenance Run Crate: the program is the workflow, phases are its steps."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from pwd import getpwuid
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from qtide.core.errors import UsageError
from qtide.core.metrics import measure
from qtide.core.version import __version__
from qtide.interfaces.export.crate_graph import CrateGraph, Ref, ref, text_of
from qtide.interfaces.export.crate_source import ProgramSource, source_of
from qtide.interfaces.export.crate_steps import CrateSteps, RunHistory
from qtide.runs.folder import RunFolder

METADATA = "ro-crate-metadata.json"
CRATE = "https://w3id.org/ro/crate/1.1"
WORKFLOW = "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate 0.5",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate 0.5",
    WORKFLOW: "Workflow RO-Crate 1.0",
}
WITH_STEPS = {"https://w3id.org/ro/wfrun/provenance/0.5": "Provenance Run Crate 0.5"}
"""The profile of crates with steps."""
PARAMETER = "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"
COMPUTATIONAL = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
QTIDE = "https://pypi.org/project/qtide/"
UNSTATED = "not stated"
LARGEST = 100_000_000
"""Maximum size in bytes of an input file that is copied."""
RUN_FILES = {
    "run.json": "the program, its arguments and its options",
    "ledger.jsonl": "what was held, starting, busy and waiting, and when",
    "agents.log": "what the tasks printed",
}
"""Files of a run's folder that go into its crate."""


def export_crate(run: RunFolder, output: Path, licence: str) -> Path:
    """Write the record of a finished run to a new folder or, if `output` says so, a .zip file."""
    if run.state in ("running", "new"):
        raise UsageError(f"the run {run.name} is {run.state}; export it when it has ended")
    crate = Crate(run, licence)
    if output.exists():
        raise UsageError(f"{output} exists already; name a new folder or file with -o")
    try:
        crate.write_archive(output) if output.suffix == ".zip" else crate.write_folder(output)
    except OSError as error:
        raise UsageError(f"{output} cannot be written ({error.strerror}); name another") from None
    return output


@dataclass
class Crate:
    """The entities of a run and their files."""

    run: RunFolder
    licence: str = UNSTATED
    graph: CrateGraph = field(default_factory=CrateGraph)
    texts: dict[str, str] = field(default_factory=dict)
    """Texts to write, by file name in the crate."""
    copies: dict[str, Path] = field(default_factory=dict)
    """Files to copy, by file name in the crate."""

    def __post_init__(self) -> None:
        """Describe the run, from the crate's root down to the phases."""
        self._parts: list[Ref] = []
        self._history = RunHistory(self.run)
        self._executions = list(self._history.executions())
        root = self._root()
        source = source_of(self.run)
        parameters, values = self._inputs(source)
        output, result = self._output()
        workflow = self._workflow(source, parameters, output)
        action = self._action(source, workflow, values, result)
        arguments = dict(zip(source.arguments, values, strict=True))
        steps = CrateSteps(
            self.graph, self._history, workflow, self._agent(), self.texts, arguments
        )
        performed = [steps.add(each) for each in self._executions]
        self._organise(action, [each.control for each in performed])
        own = [self._own_file(name, told) for name, told in RUN_FILES.items()]
        self._parts += [workflow, result, *filter(None, own), *steps.files]
        actions = [action, *(each.action for each in performed)]
        self.graph.extend(root, hasPart=self._parts, mentions=actions)
        self.graph.point(root, mainEntity=workflow)
        self.texts[METADATA] = json.dumps(self.graph.document(), indent=1, ensure_ascii=False)

    def write_folder(self, output: Path) -> None:
        """Write all files to a folder."""
        for name in (*self.texts, *self.copies):
            (output / name).parent.mkdir(parents=True, exist_ok=True)
        for name, text in self.texts.items():
            (output / name).write_text(text, encoding="utf-8")
        for name, path in self.copies.items():
            shutil.copyfile(path, output / name)

    def write_archive(self, output: Path) -> None:
        """Write all files to a .zip file."""
        output.parent.mkdir(parents=True, exist_ok=True)
        with ZipFile(output, "w", ZIP_DEFLATED) as archive:
            for name, text in self.texts.items():
                archive.writestr(name, text)
            for name, path in self.copies.items():
                archive.write(path, name)

    def _root(self) -> Ref:
        profiles = PROFILES | (WITH_STEPS if self._executions else {})
        about = {"about": {"@id": "./"}, "conformsTo": [{"@id": CRATE}, {"@id": WORKFLOW}]}
        self.graph.add(METADATA, "CreativeWork", **about)
        conforms = [
            self.graph.add(each, "CreativeWork", name=name, version=each.rpartition("/")[2])
            for each, name in profiles.items()
        ]
        return self.graph.add(
            "./",
            "Dataset",
            name=f"The run {self.run.name}",
            description=f"{self.run.spec.program} under {self.run.spec.strategy}, by qtide",
            datePublished=self._times()["endTime"],
            license=self.licence,
            author=self._agent(),
            conformsTo=conforms,
        )

    def _inputs(self, source: ProgramSource) -> tuple[list[Ref], list[Ref]]:
        """Describe the program's parameters and their values."""
        pairs = [self._input(name, value) for name, value in source.arguments.items()]
        return [parameter for parameter, _ in pairs], [value for _, value in pairs]

    def _input(self, name: str, value: Any) -> tuple[Ref, Ref]:
        identity = f"#input-{name}"
        file = self._input_file(name, value)
        example = file or ref(f"{identity}-value")
        parameter = self._parameter(identity, name, example, "File" if file else type_of(value))
        if file is None:
            shown = value if isinstance(value, bool | int | float) else text_of(value)
            self.graph.value(f"{identity}-value", name, shown, exampleOfWork=parameter)
        else:
            self.graph.extend(example, exampleOfWork=[parameter])
        return parameter, example

    def _input_file(self, name: str, value: Any) -> Ref | None:
        """Copy the file an argument names, unless it is very large."""
        path = Path(value) if isinstance(value, str | Path) and value else None
        try:
            if path is None or not path.is_file() or path.stat().st_size > LARGEST:
                return None
        except OSError:  # the text cannot be a path
            return None
        copy = self._copy(f"inputs/{name}/{path.name}", path, f"the argument {name}")
        self._parts += [copy] if copy else []
        return copy

    def _output(self) -> tuple[Ref, Ref]:
        """Describe the program's output: what it returned or how it failed."""
        self.texts["result.json"] = json.dumps(self.run.end or {}, indent=1, ensure_ascii=False)
        output = self._parameter("#output", "result", {"@id": "result.json"}, "File")
        told = "what the program returned, or why it failed"
        return output, self._file("result.json", told, exampleOfWork=output)

    def _parameter(self, identity: str, name: str, example: Ref, kind: str) -> Ref:
        self.graph.add(PARAMETER, "CreativeWork", name="FormalParameter 1.0")
        terms = {"additionalType": kind, "workExample": example, "conformsTo": {"@id": PARAMETER}}
        return self.graph.add(identity, "FormalParameter", name=name, **terms)

    def _workflow(self, source: ProgramSource, inputs: list[Ref], output: Ref) -> Ref:
        self.texts[source.file] = source.text
        language = self.graph.add(
            "https://www.python.org/",
            "ComputerLanguage",
            name="Python",
            url="https://www.python.org/",
        )
        self.graph.add(COMPUTATIONAL, "CreativeWork", name="ComputationalWorkflow 1.0")
        return self.graph.add(
            source.file,
            ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
            name=source.name,
            description=source.summary,
            programmingLanguage=language,
            input=inputs,
            output=[output],
            conformsTo={"@id": COMPUTATIONAL},
            encodingFormat="text/x-python" if source.file.endswith(".py") else "text/plain",
        )

    def _action(self, source: ProgramSource, workflow: Ref, values: list[Ref], result: Ref) -> Ref:
        state, status = self.run.state, {"actionStatus": "http://schema.org/CompletedActionStatus"}
        if state != "done":
            error = (self.run.end or {}).get("error", f"the run is {state}")
            status = {"actionStatus": "http://schema.org/FailedActionStatus", "error": error}
        scale = self.run.spec.time_scale
        clock = "in real time" if scale == 1 else f"its seconds as {scale:g} real ones"
        clock = "in virtual time" if self._history.is_virtual else clock
        return self.graph.add(
            "#run",
            "CreateAction",
            name=f"The run {self.run.name}",
            description=f"{source.name} on {self.run.spec.cluster}, {clock}",
            instrument=workflow,
            object=values,
            result=[result],
            agent=self._agent(),
            resourceUsage=self._usage(),
            **self._times(),
            **status,
        )

    def _usage(self) -> list[Ref]:
        found = measure(self._history.spans)
        seconds = {
            "node-seconds held": found.nodes_held,
            "node-seconds busy": found.nodes_busy,
            "node-seconds starting": found.nodes_starting,
            "QPU-seconds busy": found.qpu_busy,
            "slot-seconds held": found.slots_held,
            "seconds in queues": found.queue,
        }
        return [self.graph.figure("run", name, each) for name, each in seconds.items()]

    def _organise(self, action: Ref, controls: list[Ref]) -> None:
        """Describe qtide as the engine that ran the steps."""
        if not controls:
            return
        engine = self.graph.add(
            QTIDE, "SoftwareApplication", name="qtide", url=QTIDE, softwareVersion=__version__
        )
        self.graph.add(
            "#organised",
            "OrganizeAction",
            name=f"qtide under the strategy {self.run.spec.strategy}",
            instrument=engine,
            object=controls,
            result=action,
            agent=self._agent(),
            **self._times(),
        )

    def _agent(self) -> Ref:
        """Describe the owner of the run's folder."""
        number = self.run.path.stat().st_uid
        try:
            name = getpwuid(number).pw_name
        except KeyError:  # this computer does not know the account
            name = str(number)
        return self.graph.add(f"#user-{name}", "Person", name=name)

    def _times(self) -> dict[str, str]:
        drivers = [each for each in self._history.spans if each.what == "run"]
        first = min((each.start for each in drivers), default=0.0)
        last = max((each.end for each in drivers), default=0.0)
        return {
            "startTime": self._history.moment(first),
            "endTime": self._history.moment(last),
        }

    def _own_file(self, name: str, told: str) -> Ref | None:
        """Copy a file of the run; a link in the folder of others may lead to this user's files."""
        file = self.run.path / name
        linked = file.is_symlink() and self.run.distrust is not None
        return None if linked else self._copy(name, file, told)

    def _copy(self, name: str, path: Path, told: str) -> Ref | None:
        if not path.is_file():
            return None
        self.copies[name] = path
        return self._file(name, told)

    def _file(self, name: str, told: str, **properties: Any) -> Ref:
        kind = "application/json" if name.endswith((".json", ".jsonl")) else "text/plain"
        terms = {"name": Path(name).name, "description": told, "encodingFormat": kind}
        return self.graph.add(name, "File", **terms, **properties)


def type_of(value: Any) -> str:
    """Return the schema.org type of a parameter."""
    known = {bool: "Boolean", int: "Integer", float: "Float"}
    return known.get(type(value), "Text")
