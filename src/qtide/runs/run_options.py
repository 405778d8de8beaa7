"""Run options as Python keywords, with the commands' names, defaults and checks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from qtide.backends.clusters.kind import CLUSTERS
from qtide.core.errors import UsageError
from qtide.core.options import Declared, NoOptions, declared
from qtide.core.plugins import Plugins
from qtide.programs.arguments import value_of
from qtide.programs.program import Program
from qtide.runs.settings import COMMAND_LINES, Settings
from qtide.runs.spec import Spec
from qtide.runs.start import ADVISERS
from qtide.strategies.strategy import STRATEGIES

REGISTRIES: dict[str, Plugins[Any]] = {"cluster": CLUSTERS, "strategy": STRATEGIES}
"""Plug-in registries by the name of the option that selects from them."""


@dataclass(frozen=True)
class OptionOwner:
    """A plug-in that is, or could be, selected, with its options."""

    choice: str
    name: str
    summary: str
    options: tuple[Declared, ...]

    @property
    def words(self) -> str:
        """The command-line words that select it."""
        return f"--{self.choice} {self.name}"

    @property
    def heading(self) -> str:
        """Help heading of its options: a title and a line about the plug-in."""
        about = (
            f"\n{self.summary[0].upper()}{self.summary[1:].rstrip('.')}." if self.summary else ""
        )
        return f"Options of {self.words}{about}"


def owner(choice: str, name: str) -> OptionOwner:
    """Find a plug-in by name; UsageError lists the known ones."""
    if choice == "strategy" and name in ADVISERS.names():
        # it may choose any strategy, so the options of all of them may be given
        kinds = [ADVISERS.load(name), *map(STRATEGIES.load, STRATEGIES.names())]
        found = {
            each.name: each
            for kind in kinds
            for each in declared(getattr(kind, "Options", NoOptions))
            if each.name != "engine"
        }
        summary = "the strategy is chosen when the run starts"
        return OptionOwner(choice, name, summary, tuple(found.values()))
    if choice == "strategy" and name not in STRATEGIES.names():
        known = ", ".join((*STRATEGIES.names(), *ADVISERS.names()))
        raise UsageError(f"there is no strategy {name!r}; there are: {known}")
    plugin = REGISTRIES[choice].load(name)
    return OptionOwner(choice, name, plugin.summary, tuple(declared(plugin.Options)))


def others(chosen: list[OptionOwner]) -> Iterator[OptionOwner]:
    """Yield the plug-ins that were not selected, except those that cannot be loaded."""
    taken = {(each.choice, each.name) for each in chosen}
    for choice, registry in REGISTRIES.items():
        for name in registry.names():
            if (choice, name) not in taken:
                try:
                    yield owner(choice, name)
                except UsageError:
                    continue


Owned = dict[str, tuple[OptionOwner, Declared]]
"""Options by name, each with its plug-in."""


def distinct(owners: Iterable[OptionOwner], taken: Iterable[str]) -> Owned:
    """Options of several plug-ins by name, without `taken` ones; the first of a name wins."""
    found: Owned = {}
    for owner in owners:
        for each in owner.options:
            if each.name not in taken:
                found.setdefault(each.name, (owner, each))
    return found


def plugin_value(declared: Declared, given: Any) -> Any:
    """Convert the value of a plug-in's option from the command line, a file or Python."""
    if given is None or (isinstance(given, list | tuple) and not given):
        return declared.default
    if isinstance(given, bool):
        return given
    if several(declared):
        each_kind = next(iter(get_args(declared.type)), str)
        words = [given] if isinstance(given, str) else given
        return [_read(declared, each_kind, str(word)) for word in words]
    return _read(declared, declared.type, str(given))


def several(declared: Declared) -> bool:
    """Whether an option takes several values."""
    return (get_origin(declared.type) or declared.type) in (list, tuple)


def foreign(name: str, whose: OptionOwner, chosen: Iterable[OptionOwner]) -> UsageError:
    """Error for an option of a plug-in that was not selected, which would have no effect."""
    here = " and ".join(each.words for each in chosen if each.choice == whose.choice)
    return UsageError(
        f"--{name.replace('_', '-')} is an option of {whose.words}, not of {here}; "
        f"leave it out, or use {whose.words}"
    )


def _read(declared: Declared, kind: Any, word: str) -> Any:
    if declared.option.parse is None:
        return value_of(declared.name, kind, [word])
    try:
        return declared.option.parse(word)
    except ValueError as error:
        option = declared.name.replace("_", "-")
        raise UsageError(f"the argument {option} cannot be {word!r}: {error}") from None


COMMANDS = ("modules", "wrapper", "launcher")
"""The options of commands, by their names in `Spec` and in `CommandSettings`."""
CORE = ("strategy", "cluster", "nodes", "qpu", "vqpus", "time_scale", "seed", "needs", *COMMANDS)
"""The options of every run, by their names in `Spec`."""
SHARED = ("seed",)
"""Options also passed to the program's parameter of the same name."""
RUNS = Path("qtide-runs")
"""Default folder of runs."""


class RunOptions:
    """Options given for one command; the others come from a file or have their defaults."""

    def __init__(self, command: str, given: Mapping[str, Any], own: tuple[str, ...] = ()) -> None:
        self.command = command
        self.own = ("runs", *own)
        self._given = {name: value for name, value in given.items() if value is not None}
        self._settings = Settings.read()

    def find(self, name: str, default: Any = None) -> Any:
        """Look up an option: as given, from a file, or the default."""
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
        """The named strategies; a comparison takes several."""
        found = self.find("strategy", [])
        return list(map(str, found)) if isinstance(found, list | tuple) else [str(found)]

    def spec(self, program: str, *, several: bool = False, **more: Any) -> Spec:
        """Build the description of a run; refuse unknown options."""
        chosen = list(self._chosen(several=several))
        mine = distinct(chosen, {*CORE, *self.own})
        self._refuse_unknown(chosen, mine)
        self._settings.refuse_command_lines((self.command,), COMMAND_LINES)
        options = {name: plugin_value(each, self.find(name)) for name, (_, each) in mine.items()}
        return Spec(program, options=options, **self._core(several=several), **more)

    def _chosen(self, *, several: bool) -> Iterator[OptionOwner]:
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

    def _refuse_unknown(self, chosen: list[OptionOwner], mine: Owned) -> None:
        unknown = self._given.keys() - {*CORE, *self.own, *mine}
        if not unknown:
            return
        theirs = distinct(others(chosen), {*CORE, *self.own, *mine})
        for name in sorted(unknown):
            if name in theirs:
                raise foreign(name, theirs[name][0], chosen)
            known = (*CORE, *self.own, *mine)
            near = get_close_matches(name, known, 1)
            advice = f"did you mean {near[0]!r}? There" if near else "there"
            raise UsageError(f"qtide has no option {name!r} here; {advice} are: {', '.join(known)}")


def parted(
    program: Program, given: Mapping[str, Any], own: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split keywords into the program's and the run's options; refuse ambiguous ones."""
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
