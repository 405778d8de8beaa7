"""Options of a run given as Python's keywords: the names, defaults and checks of the commands."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from qtide.errors import UsageError
from qtide.programs.arguments import value_of
from qtide.programs.program import Program
from qtide.runs.owners import REGISTRIES, Owner, others, owner
from qtide.runs.plugin_options import Owned, distinct, foreign, plugin_value
from qtide.runs.settings import Settings
from qtide.runs.spec import Spec

CORE = ("strategy", "cluster", "nodes", "qpu", "vqpus", "time_scale", "seed")
"""The options of every run, by their names in `Spec`."""
SHARED = ("seed",)
"""Options that are also passed to a program's parameter of the same name."""
RUNS = Path("qtide-runs")
"""The folder of runs, unless another is named."""


class Options:
    """What was given for one command; what was not is in a file, or has its default."""

    def __init__(self, command: str, given: Mapping[str, Any], own: tuple[str, ...] = ()) -> None:
        self.command = command
        self.own = ("runs", *own)
        self._given = {name: value for name, value in given.items() if value is not None}
        self._settings = Settings.read()

    def find(self, name: str, default: Any = None) -> Any:
        """The value of an option of the command itself."""
        if name in self._given:
            return self._given[name]
        found = self._settings.find((self.command,), name)
        return default if found is None else found[0]

    @property
    def runs(self) -> Path:
        """The folder of runs."""
        named = self._given.get("runs") or os.environ.get("QTIDE_RUNS")
        return Path(named or self.find("runs", RUNS))

    def strategies(self) -> list[str]:
        """The strategies that are named; a comparison takes several."""
        found = self.find("strategy", [])
        return list(map(str, found)) if isinstance(found, list | tuple) else [str(found)]

    def spec(self, program: str, *, several: bool = False, **more: Any) -> Spec:
        """The description of a run; whatever it cannot have is refused."""
        chosen = list(self._chosen(several=several))
        mine = distinct(chosen, {*CORE, *self.own})
        self._refuse_unknown(chosen, mine)
        options = {name: plugin_value(each, self.find(name)) for name, (_, each) in mine.items()}
        return Spec(program, options=options, **self._core(several=several), **more)

    def _chosen(self, *, several: bool) -> Iterator[Owner]:
        usual, named = Spec(""), self.strategies()
        yield owner("cluster", str(self.find("cluster", usual.cluster)).partition(":")[0])
        all_of_them = REGISTRIES["strategy"].names() if several else [usual.strategy]
        for each in named or all_of_them:
            yield owner("strategy", each)

    def _core(self, *, several: bool) -> dict[str, Any]:
        types = get_type_hints(Spec)
        found = {name: self.find(name) for name in CORE if not (several and name == "strategy")}
        return {
            name: value_of(name, types[name], [str(value)])
            for name, value in found.items()
            if value is not None
        }

    def _refuse_unknown(self, chosen: list[Owner], mine: Owned) -> None:
        unknown = self._given.keys() - {*CORE, *self.own, *mine}
        if not unknown:
            return
        theirs = distinct(others(chosen), {*CORE, *self.own, *mine})
        for name in sorted(unknown):
            if name in theirs:
                raise foreign(name, theirs[name][0], chosen)
            known = ", ".join((*CORE, *self.own, *mine))
            raise UsageError(f"qtide has no option {name!r} here; there are: {known}")


def parted(
    program: Program, given: Mapping[str, Any], own: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keywords of a program, and the options of its run; one that may be both is refused."""
    parameters = program.signature.parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    ours = {*CORE, "runs", *own}
    mine: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in given.items():
        if name in parameters and name not in SHARED:
            if name in ours:
                raise _ambiguous(program, name)
            mine[name] = value
        elif takes_any and name not in ours:
            mine[name] = value
        else:
            options[name] = value
    return mine, options


def _ambiguous(program: Program, name: str) -> UsageError:
    return UsageError(
        f"{name} is an option of qtide and of {program.name}: give qtide's beforehand, as in "
        f"`{program.name}.using({name}=...).run(...)`; then {name} is the program's"
    )
