"""A step of an exported workflow, as its engine starts it: python -m qtide.export.cwl.step ...

What it writes goes to the folder it is started in, and `cwl.output.json` says what that is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qtide.errors import QtideError
from qtide.system.files import read_json

OUTPUTS = "cwl.output.json"
"""Where an engine looks for what a step gives."""


def main(words: list[str] | None = None) -> None:
    """Do one step; an error is a sentence, and ends it."""
    name, *rest = sys.argv[1:] if words is None else words
    try:
        outputs = STEPS[name](*rest)
    except QtideError as error:
        sys.stderr.write(f"qtide: {error}\n")
        sys.exit(error.exit_code)
    Path(OUTPUTS).write_text(json.dumps(_described(outputs)))


def advance(folder: str, journal: str, *answers: str) -> dict[str, Any]:
    """Play the program of a run on to its next phases."""
    from qtide.export.cwl.advance import advance as played
    from qtide.runs.folder import RunFolder

    return played(RunFolder(Path(folder)), Path(journal), [Path(each) for each in answers], _here())


def classical(parcel: str) -> dict[str, Any]:
    """Run one task."""
    from qtide.export.cwl.parcel import Parcel
    from qtide.export.cwl.perform import classical as performed

    return {"answer": performed(Parcel.read(Path(parcel)), _here()).write(_here())}


def quantum(*parcels: str) -> dict[str, Any]:
    """Run payloads."""
    from qtide.export.cwl.parcel import Parcel
    from qtide.export.cwl.perform import quantum as performed

    answers = performed([Parcel.read(Path(each)) for each in parcels], _here())
    return {"answers": [each.write(_here()) for each in answers]}


def conclude(outcome: str) -> dict[str, Any]:
    """Give the result of the program, or fail as it did."""
    said = read_json(Path(outcome))
    if "error" in said:
        raise QtideError(said["error"])
    result = _here() / "result.json"
    result.write_text(json.dumps(said["value"], indent=2) + "\n")
    return {"result": result}


STEPS: dict[str, Callable[..., dict[str, Any]]] = {
    "advance": advance,
    "classical": classical,
    "quantum": quantum,
    "conclude": conclude,
}


def _here() -> Path:
    return Path.cwd()


def _described(outputs: Any) -> Any:
    """Files as CWL describes them."""
    if isinstance(outputs, dict):
        return {name: _described(each) for name, each in outputs.items()}
    if isinstance(outputs, list):
        return [_described(each) for each in outputs]
    return {"class": "File", "path": str(outputs)} if isinstance(outputs, Path) else outputs


if __name__ == "__main__":
    main()
