"""An exported program: the folder of a run that is driven by a workflow engine.

So whatever has been done with it, qtide can show, report and resume it like any other run.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from qtide.errors import UsageError
from qtide.export.cwl.files import check_spec, prepare, write
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.runs.start import check

STRATEGY = "workflow"
"""What a run that an engine drives holds when."""


def export_cwl(spec: Spec, folder: Path) -> RunFolder:
    """Write a program as a workflow to a new folder; whoever has that chooses the engine."""
    options = {name: value for name, value in spec.options.items() if name != "engine"}
    spec = replace(spec, strategy=STRATEGY, options=options)
    check_spec(spec)
    check(spec)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already and is not empty; name another folder with -o")
    if folder.exists():
        folder.rmdir()
    run = RunFolder.create(folder.absolute().parent, folder.name, spec)
    try:
        prepare(run)
        write(run, run.path)
    except BaseException:
        shutil.rmtree(run.path)
        raise
    return run
