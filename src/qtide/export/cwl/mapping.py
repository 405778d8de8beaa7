"""StreamFlow's mapping: which step of the workflow runs where, from the options of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qtide.runs.folder import RunFolder


def mapping(run: RunFolder, workflow: Path, inputs: Path) -> dict[str, Any]:
    """The content of a streamflow.yml."""
    return {}
