"""What a run is: everything that is needed to start it, and to resume it, as one JSON file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from qtide.backends.clusters.kind import Setting
from qtide.core.files import Damaged, read_json, write_json


@dataclass(frozen=True)
class Spec:
    """The program, its arguments, and the options under their names on the command line."""

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
    """The options of the cluster's and the strategy's plug-ins, by name."""

    session: bool = False
    """Whether its program is a script that has a session."""

    def setting(self) -> Setting:
        """What its cluster needs to know."""
        return Setting(self.cluster.partition(":")[2], self.nodes, self.options)

    def write(self, file: Path) -> None:
        """Write as JSON."""
        write_json(file, asdict(self))

    @staticmethod
    def read(file: Path) -> Spec:
        """Read what `write` wrote, or an earlier version, which had all options on one level."""
        try:
            entries = read_json(file)
            known = {each.name for each in fields(Spec)}
            loose = {key: value for key, value in entries.items() if key not in known}
            own = {key: value for key, value in entries.items() if key in known}
            return Spec(**own | {"options": loose | own.get("options", {})})
        except (OSError, TypeError) as error:
            raise Damaged(f"{file} cannot be read as a run's description: {error}") from None
