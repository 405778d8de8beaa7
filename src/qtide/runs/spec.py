"""A run's description: everything needed to start or resume it, in one JSON file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qtide.core.files import Damaged, read_json, write_json
from qtide.core.resources import WHOLE, Needs

if TYPE_CHECKING:  # commands that only look at runs are faster without
    from qtide.backends.clusters.kind import Setting
    from qtide.core.job import CommandSettings

KINDS = {
    "str": str,
    "bool": bool,
    "int": int,
    "int | None": int | None,
    "float": int | float,
    "list[str]": list,
    "dict[str, Any]": dict,
}
"""What an entry of a description may be, by the type of its field."""


@dataclass(frozen=True)
class Spec:
    """The program, its arguments, and the options by their command-line names."""

    program: str
    words: list[str] = field(default_factory=list)
    strategy: str = "elastic"
    cluster: str = "local"
    nodes: int | None = None
    qpu: str = "superconducting"
    vqpus: int = 1
    time_scale: float = 1.0
    seed: int = 0
    modules: str = ""
    wrapper: str = ""
    launcher: str = ""
    needs: str = ""
    """What a task needs that says nothing, as in `cores=1`; empty for a whole node."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the cluster and strategy plug-ins, by name."""

    session: bool = False
    """Whether the program is a script with a session."""

    def setting(self) -> Setting:
        """Settings for the run's cluster."""
        from qtide.backends.clusters.kind import Setting

        return Setting(self.cluster.partition(":")[2], self.nodes, self.options)

    @property
    def commands(self) -> CommandSettings:
        """Settings for the run's commands."""
        from qtide.core.job import CommandSettings

        return CommandSettings(self.modules, self.wrapper, self.launcher)

    def default_needs(self, of_program: Needs = WHOLE) -> Needs:
        """What a task needs that says nothing: as the run says, or else the program."""
        return Needs.parse(self.needs) if self.needs else of_program

    def write(self, file: Path) -> None:
        """Write as JSON."""
        write_json(file, asdict(self))

    @staticmethod
    def read(file: Path) -> Spec:
        """Read a file by `write`, or by an earlier version with all options on one level."""
        try:
            entries = read_json(file)
            types = {each.name: str(each.type) for each in fields(Spec)}
            loose = {key: value for key, value in entries.items() if key not in types}
            own = {key: value for key, value in entries.items() if key in types}
            for key, value in own.items():  # the file may be anybody's
                _check_type(key, value, types[key])
            return Spec(**own | {"options": loose | own.get("options", {})})
        except (OSError, TypeError) as error:
            raise Damaged(f"{file} cannot be read as a run's description: {error}") from None


def _check_type(key: str, value: Any, kind: str) -> None:
    """Refuse a value of another type than its field's."""
    if not isinstance(value, KINDS[kind]):
        raise TypeError(f"{key!r} cannot be {value!r}")
