"""A crate's description of a run's program and devices."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qtide.backends.client.client import Client
from qtide.backends.devices.device import choice
from qtide.core.errors import QtideError
from qtide.programs.journal import TARGET, records
from qtide.runs.driver import plain
from qtide.runs.folder import Call, RunFolder

PROVIDED = ("folder", "target")
"""Parameters that say where a program runs, not what it computes."""
PATIENCE = 2.0
"""Seconds to wait for a service's answer."""


@dataclass(frozen=True)
class ProgramSource:
    """The source file of a program and the arguments of its call."""

    name: str
    file: str
    text: str
    summary: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


def source_of(run: RunFolder) -> ProgramSource:
    """Return the source of a run's program or a session's script.

    If the source is gone, or the run is another user's, return the command line instead.
    """
    spec = run.spec
    try:
        run.trusted()  # its description names files to read, and a program to import
        if spec.session:
            script = Path(spec.program)
            return ProgramSource(script.stem, script.name, script.read_text())
        call = Call.read(run.path, run.values, spec)
        function = call.program.function
        file = Path(inspect.getsourcefile(function) or function.__name__).name
        text = inspect.getsource(inspect.getmodule(function) or function)
        summary = (inspect.getdoc(function) or "").partition("\n")[0]
        arguments = _arguments(call, spec.seed)
        return ProgramSource(call.program.name, file, text, summary, arguments)
    except Exception:  # importing a user's program may raise anything
        command = " ".join([spec.program, *spec.words])
        reason = "missing" if run.distrust is None else "not read, as it is another user's,"
        text = f"The source was {reason} when this record was made. The run was: {command}\n"
        name = Path(spec.program).stem
        return ProgramSource(name, "program.txt", text, "", {"arguments": spec.words})


def _arguments(call: Call, seed: int) -> dict[str, Any]:
    """Return all arguments by name, including defaults."""
    bound = call.program.signature.bind_partial(*call.args, **call.kwargs)
    if "seed" in call.program.from_run:
        bound.arguments.setdefault("seed", seed)
    bound.apply_defaults()
    given = {name: each for name, each in bound.arguments.items() if name not in PROVIDED}
    return {name: each if isinstance(each, Path) else plain(each) for name, each in given.items()}


def devices_of(run: RunFolder, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Describe the devices of a run, from the journal, the service or the device itself.

    The journal takes precedence: it has the device as the program saw it.
    """
    found = {name: {"name": name, "kind": name, "properties": {}} for name in names}
    target = records(run.journal).get(TARGET)
    known = [] if target is None else [target.outcome]
    with suppress(QtideError):  # the service or the device's package is gone
        known = [*_present_devices(run.trusted().spec.qpu), *known]
    return found | {each["name"]: each for each in known if each["name"] in found}


def _present_devices(qpu: str) -> list[dict[str, Any]]:
    if "://" in qpu:
        root = "/".join(qpu.split("/")[:3])
        return Client(root, patience=PATIENCE).devices()
    chosen = choice(qpu)
    device, timing = chosen.device, chosen.profile
    times = {"payload_s": timing.payload_s, "shot_s": timing.shot_s, "timing": timing.name}
    properties = device.properties() | times | {"emulated": True}
    return [{"name": device.name, "kind": chosen.kind, "properties": properties}]
