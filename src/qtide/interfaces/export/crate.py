"""A run as a Provenance Run Crate: its program is the workflow, its phases are the steps.

The metadata is written as JSON by ourselves: it is some forty kinds of lines, and the libraries for
it would be heavier than all of this. The profile's own checker is in the tests.
"""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from pwd import getpwuid
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from qtide.backends.client.client import Client
from qtide.backends.devices.device import choice
from qtide.core.errors import QtideError, UsageError
from qtide.core.version import __version__
from qtide.interfaces.export.crate_steps import CrateGraph, History, Ref, Steps, ref, usage_of_run
from qtide.programs.journal import TARGET, records
from qtide.runs.driver import plain
from qtide.runs.folder import Call, RunFolder

PROVIDED = ("folder", "target")
"""Parameters that say where a program runs, not what it computes."""


@dataclass(frozen=True)
class Source:
    """A program as a file, and what it was called with."""

    name: str
    file: str
    text: str
    summary: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


def source_of(run: RunFolder) -> Source:
    """That of a program or of a session's script; if it is gone, only what the run was told."""
    spec = run.spec
    try:
        if spec.session:
            script = Path(spec.program)
            return Source(script.stem, script.name, script.read_text())
        call = Call.read(run.path, run.values, spec)
        function = call.program.function
        name = Path(inspect.getsourcefile(function) or function.__name__).name
        text = inspect.getsource(inspect.getmodule(function) or function)
        summary = (inspect.getdoc(function) or "").partition("\n")[0]
        return Source(call.program.name, name, text, summary, _arguments(call, spec.seed))
    except Exception:  # whatever importing somebody's program may raise
        return _told(run)


def _told(run: RunFolder) -> Source:
    spec = run.spec
    words = " ".join([spec.program, *spec.words])
    text = f"The source was not there when this record was made. The run was: {words}\n"
    return Source(Path(spec.program).stem, "program.txt", text, "", {"arguments": spec.words})


def _arguments(call: Call, seed: int) -> dict[str, Any]:
    """All arguments by name, with the defaults."""
    bound = call.program.signature.bind_partial(*call.args, **call.kwargs)
    if "seed" in call.program.from_run:
        bound.arguments.setdefault("seed", seed)
    bound.apply_defaults()
    given = {name: each for name, each in bound.arguments.items() if name not in PROVIDED}
    return {name: each if isinstance(each, Path) else plain(each) for name, each in given.items()}


PATIENCE = 2.0
"""Seconds that a service may take to answer."""


def described(run: RunFolder, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What is known of each device: from the journal, from the service, or from the device."""
    found = {name: {"name": name, "kind": name, "properties": {}} for name in names}
    for each in _known(run):
        if each["name"] in found:
            found[each["name"]] = each
    return found


def _known(run: RunFolder) -> list[dict[str, Any]]:
    """The device that the run's program was told of comes last: that is how it was then."""
    target = records(run.journal).get(TARGET)
    then = [] if target is None else [target.outcome]
    try:
        return [*_now(run.spec.qpu), *then]
    except QtideError:  # the service is gone, or the device's package
        return then


def _now(qpu: str) -> list[dict[str, Any]]:
    if "://" in qpu:
        root = "/".join(qpu.split("/")[:3])
        return Client(root, patience=PATIENCE).devices()
    chosen = choice(qpu)
    device, timing = chosen.device, chosen.profile
    times = {"payload_s": timing.payload_s, "shot_s": timing.shot_s, "timing": timing.name}
    properties = device.properties() | times | {"emulated": True}
    return [{"name": device.name, "kind": chosen.kind, "properties": properties}]


METADATA = "ro-crate-metadata.json"
CRATE = "https://w3id.org/ro/crate/1.1"
WORKFLOW = "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate 0.5",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate 0.5",
    WORKFLOW: "Workflow RO-Crate 1.0",
}
WITH_STEPS = {"https://w3id.org/ro/wfrun/provenance/0.5": "Provenance Run Crate 0.5"}
PARAMETER = "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"
COMPUTATIONAL = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
QTIDE = "https://pypi.org/project/qtide/"
UNSTATED = "not stated"
LARGEST = 100_000_000
"""Bytes of an input file up to which it is copied."""
OWN = {
    "run.json": "the program, its arguments and its options",
    "ledger.jsonl": "what was held, starting, busy and waiting, and when",
    "agents.log": "what the tasks printed",
}
"""Files of a run's folder that others can read."""


@dataclass
class Crate:
    """The entities of a run, and the files that belong to them."""

    run: RunFolder
    licence: str = UNSTATED
    graph: CrateGraph = field(default_factory=CrateGraph)
    texts: dict[str, str] = field(default_factory=dict)
    """Files to be written, by their names in the crate,"""
    copies: dict[str, Path] = field(default_factory=dict)
    """and files to be copied."""

    def __post_init__(self) -> None:
        """Describe everything."""
        self._parts: list[Ref] = []
        self._history = History(self.run)
        self._executions = list(self._history.executions())
        self._root()
        self._describe(source_of(self.run))
        self.texts[METADATA] = json.dumps(self.graph.document(), indent=1, ensure_ascii=False)

    def _root(self) -> None:
        profiles = PROFILES | (WITH_STEPS if self._executions else {})
        about = {"about": {"@id": "./"}, "conformsTo": [{"@id": CRATE}, {"@id": WORKFLOW}]}
        self.graph.add(METADATA, "CreativeWork", **about)
        version = {each: each.rpartition("/")[2] for each in profiles}
        conforms = [
            self.graph.add(each, "CreativeWork", name=name, version=version[each])
            for each, name in profiles.items()
        ]
        self.graph.add(
            "./",
            "Dataset",
            name=f"The run {self.run.name}",
            description=f"{self.run.spec.program} under {self.run.spec.strategy}, by qtide",
            datePublished=self._times()["endTime"],
            license=self.licence,
            author=self._agent(),
            conformsTo=conforms,
        )

    def _describe(self, source: Source) -> None:
        inputs, values = self._inputs(source)
        output, result = self._output()
        workflow = self._workflow(source, inputs, [output])
        own = [self._copy(name, self.run.path / name, told) for name, told in OWN.items()]
        action = self._action(source, workflow, values, result)
        steps = Steps(self.graph, self._history, workflow, self._agent(), self.texts)
        performed = [steps.add(each) for each in self._executions]
        self._organise(action, [each.control for each in performed])
        self._parts += [workflow, result, *filter(None, own), *steps.files]
        actions = [action, *(each.action for each in performed)]
        root = {"@id": "./"}
        self.graph.extend(root, hasPart=self._parts, mentions=actions)
        self.graph.point(root, mainEntity=workflow)

    def _workflow(self, source: Source, inputs: list[Ref], outputs: list[Ref]) -> Ref:
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
            output=outputs,
            conformsTo={"@id": COMPUTATIONAL},
            encodingFormat="text/x-python" if source.file.endswith(".py") else "text/plain",
        )

    def _inputs(self, source: Source) -> tuple[list[Ref], list[Ref]]:
        """The parameters of the program, and their values."""
        pairs = [self._input(name, value) for name, value in source.arguments.items()]
        return [parameter for parameter, _ in pairs], [value for _, value in pairs]

    def _input(self, name: str, value: Any) -> tuple[Ref, Ref]:
        identity = f"#input-{name}"
        file = self._input_file(name, value)
        example = file or ref(f"{identity}-value")
        parameter = self._parameter(identity, name, example, "File" if file else type_of(value))
        if file is None:
            shown = value if isinstance(value, bool | int | float) else _text(value)
            self.graph.value(f"{identity}-value", name, shown, exampleOfWork=parameter)
        else:
            self.graph.extend(example, exampleOfWork=[parameter])
        return parameter, example

    def _parameter(self, identity: str, name: str, example: Ref, kind: str) -> Ref:
        self.graph.add(PARAMETER, "CreativeWork", name="FormalParameter 1.0")
        terms = {"additionalType": kind, "workExample": example, "conformsTo": {"@id": PARAMETER}}
        return self.graph.add(identity, "FormalParameter", name=name, **terms)

    def _input_file(self, name: str, value: Any) -> Ref | None:
        """A file that an argument names: a copy, unless it is very large."""
        path = Path(value) if isinstance(value, str | Path) and value else None
        try:
            if path is None or not path.is_file() or path.stat().st_size > LARGEST:
                return None
        except OSError:  # a text that cannot be a path
            return None
        copy = self._copy(f"inputs/{name}/{path.name}", path, f"the argument {name}")
        self._parts += [copy] if copy else []
        return copy

    def _output(self) -> tuple[Ref, Ref]:
        """What the program returned, or how it failed."""
        self.texts["result.json"] = json.dumps(self.run.end or {}, indent=1, ensure_ascii=False)
        output = self._parameter("#output", "result", {"@id": "result.json"}, "File")
        told = "what the program returned, or why it failed"
        result = self._file("result.json", told, exampleOfWork=output)
        return output, result

    def _action(self, source: Source, workflow: Ref, values: list[Ref], result: Ref) -> Ref:
        return self.graph.add(
            "#run",
            "CreateAction",
            name=f"The run {self.run.name}",
            description=f"{source.name} on {self.run.spec.cluster}, {self._clock()}",
            instrument=workflow,
            object=values,
            result=[result],
            agent=self._agent(),
            resourceUsage=usage_of_run(self.graph, self._history.spans),
            **self._times(),
            **self._status(),
        )

    def _organise(self, action: Ref, controls: list[Ref]) -> None:
        """What qtide did: it ran the steps."""
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
        """Whoever owns the run's folder."""
        number = self.run.path.stat().st_uid
        try:
            name = getpwuid(number).pw_name
        except KeyError:  # an account that this computer does not know
            name = str(number)
        return self.graph.add(f"#user-{name}", "Person", name=name)

    def _times(self) -> dict[str, str]:
        lived = [each for each in self._history.spans if each.what == "run"]
        first = min((each.start for each in lived), default=0.0)
        last = max((each.end for each in lived), default=0.0)
        return {
            "startTime": self._history.moment(first),
            "endTime": self._history.moment(last),
        }

    def _status(self) -> dict[str, Any]:
        state = self.run.state
        if state == "done":
            return {"actionStatus": "http://schema.org/CompletedActionStatus"}
        error = (self.run.end or {}).get("error", f"the run is {state}")
        return {"actionStatus": "http://schema.org/FailedActionStatus", "error": error}

    def _clock(self) -> str:
        if self._history.is_virtual:
            return "in virtual time"
        scale = self.run.spec.time_scale
        return "in real time" if scale == 1 else f"its seconds as {scale:g} real ones"

    def _copy(self, name: str, path: Path, told: str) -> Ref | None:
        if not path.is_file():
            return None
        self.copies[name] = path
        return self._file(name, told)

    def _file(self, name: str, told: str, **properties: Any) -> Ref:
        kind = "application/json" if name.endswith((".json", ".jsonl")) else "text/plain"
        terms = {"name": Path(name).name, "description": told, "encodingFormat": kind}
        return self.graph.add(name, "File", **terms, **properties)


def finished(run: RunFolder) -> RunFolder:
    """The run itself; UsageError if there is nothing final to tell of it."""
    if run.state in ("running", "new"):
        raise UsageError(f"the run {run.name} is {run.state}; export it when it has ended")
    return run


def type_of(value: Any) -> str:
    """The type of a parameter, in the words of schema.org."""
    known = {bool: "Boolean", int: "Integer", float: "Float"}
    return known.get(type(value), "Text")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def export_crate(run: RunFolder, output: Path, licence: str) -> Path:
    """Write the record of a finished run to a new folder or, if it is named so, to a .zip file."""
    crate = Crate(finished(run), licence)
    if output.exists():
        raise UsageError(f"{output} exists already; name a new folder or file with -o")
    try:
        _archive(crate, output) if output.suffix == ".zip" else _folder(crate, output)
    except OSError as error:
        raise UsageError(f"{output} cannot be written ({error.strerror}); name another") from None
    return output


def _folder(crate: Crate, output: Path) -> None:
    for name, text in crate.texts.items():
        _place(output, name).write_text(text, encoding="utf-8")
    for name, path in crate.copies.items():
        shutil.copyfile(path, _place(output, name))


def _place(output: Path, name: str) -> Path:
    path = output / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _archive(crate: Crate, output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(output, "w", ZIP_DEFLATED) as archive:
        for name, text in crate.texts.items():
            archive.writestr(name, text)
        for name, path in crate.copies.items():
            archive.write(path, name)
