"""What a run is: everything that is needed to start it, and to resume it, as one JSON file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from qtide.errors import QtideError
from qtide.system.files import write_whole


@dataclass(frozen=True)
class Spec:
    """The program, its arguments, and the options under the names that the command line has."""

    program: str
    words: list[str] = field(default_factory=list)
    strategy: str = "elastic"
    cluster: str = "local"
    nodes: int | None = None
    qpu: str = "superconducting"
    vqpus: int = 1
    time_scale: float = 1.0
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    """What kinds of clusters and strategies declare."""

    def write(self, file: Path) -> None:
        """Write as JSON."""
        write_whole(file, (json.dumps(asdict(self), indent=2) + "\n").encode())

    @staticmethod
    def read(file: Path) -> Spec:
        """Read what `write` wrote, this version's or the one before."""
        try:
            entries: dict[str, Any] = json.loads(file.read_text())
            known = {each.name for each in fields(Spec)}
            flat = {key: value for key, value in entries.items() if key not in known}
            own = {key: value for key, value in entries.items() if key in known}
            return Spec(**own | {"options": flat | own.get("options", {})})
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise QtideError(f"{file} cannot be read as a run's description: {error}") from None
