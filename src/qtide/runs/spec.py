"""What a run is: everything that is needed to start it, and to resume it, as one JSON file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from qtide.errors import QtideError


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
    expand_timeout: float = 5.0
    favour: float = 0.5
    idle_share: float = 0.1
    memory: int | None = None
    cores: int | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time_limit: str = "60"
    salloc: list[str] = field(default_factory=list)
    qpu_by: str = "none"
    qpu_partition: str = "quantum"

    def write(self, file: Path) -> None:
        """Write as JSON."""
        file.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @staticmethod
    def read(file: Path) -> Spec:
        """Read what `write` wrote."""
        try:
            entries: dict[str, Any] = json.loads(file.read_text())
            known = {each.name for each in fields(Spec)}
            return Spec(**{key: value for key, value in entries.items() if key in known})
        except (OSError, ValueError, TypeError) as error:
            raise QtideError(f"{file} cannot be read as a run's description: {error}") from None
