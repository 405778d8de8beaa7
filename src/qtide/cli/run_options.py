"""The options of a run as typer parameters: those of every run, and those of plug-ins."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, get_args, get_type_hints

import typer

from qtide.cli import completion
from qtide.devices.kinds import DEVICES
from qtide.devices.profile import profiles
from qtide.options import Declared
from qtide.programs.load import APPS
from qtide.runs.advised import ADVISERS
from qtide.runs.owners import REGISTRIES, Owner
from qtide.runs.plugin_options import several
from qtide.runs.spec import Spec

PANEL = "rich_help_panel"


def core_parameters() -> dict[str, inspect.Parameter]:
    """The options of every run, under their names in `Spec`."""
    types, usual = get_type_hints(Spec), Spec("")
    return {
        name: _keyword(name, types[name], getattr(usual, name), **terms)
        for name, terms in _core_terms().items()
    }


def program_parameter() -> inspect.Parameter:
    """The program; it gets all arguments that qtide does not know."""
    text = f"FILE.py[:NAME], MODULE:NAME, or {', '.join(APPS.names())}."
    argument = typer.Argument(metavar="PROGRAM", help=text, autocompletion=completion.programs)
    return inspect.Parameter(
        "program", inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[str, argument]
    )


def plugin_parameter(owner: Owner, declared: Declared, *, hidden: bool) -> inspect.Parameter:
    """An option of a plug-in, as typer declares it."""
    kind: Any = str | None
    if declared.type is bool:
        kind = bool | None
    elif several(declared):
        kind = list[str] | None
    usual = _words(declared.default)
    return _keyword(
        declared.name,
        kind,
        None,
        help=declared.option.help + (f"  [default: {usual}]" if usual else ""),
        metavar=declared.option.metavar or _metavar(declared.type),
        hidden=hidden,
        **({} if declared.type is bool else {"parser": str}),
        **{PANEL: owner.heading},
    )


def _core_terms() -> dict[str, dict[str, Any]]:
    kinds, strategies = (", ".join(REGISTRIES[each].names()) for each in ("cluster", "strategy"))
    advisers = ", ".join(ADVISERS.names())
    return {
        "strategy": {
            "help": f"When to hold what: {strategies}, or {advisers}.",
            "metavar": "NAME",
            "autocompletion": completion.strategies_and_advisers,
        },
        "cluster": {
            "help": f"Where: {kinds}.",
            "metavar": "KIND",
            "autocompletion": completion.clusters,
        },
        "nodes": {"help": "The most nodes a job may hold.  [default: all]"},
        "qpu": {
            "help": f"Device ({', '.join(DEVICES.names())}), timing "
            f"({', '.join(sorted(profiles()))}) or both, as gate:photonic,qubits=7; or a service's,"
            " as http://HOST:PORT/DEVICE.",
            "metavar": "DEVICE",
            "autocompletion": completion.qpus,
        },
        "vqpus": {"help": "Virtual QPUs that share the device."},
        "time_scale": {"help": "Real seconds per second of the run."},
        "seed": {"help": "The seed of everything random."},
    }


def _keyword(name: str, kind: Any, default: Any, **terms: Any) -> inspect.Parameter:
    option = Annotated[kind, typer.Option(**terms)]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option
    )


def _words(default: Any) -> str:
    if default is None or isinstance(default, bool):
        return ""
    if isinstance(default, (list, tuple)):
        return ",".join(map(str, default))
    return str(default)


def _metavar(kind: Any) -> str:
    """The placeholder of the value in the help."""
    plain = [each for each in get_args(kind) or (kind,) if each not in (type(None), ...)]
    return {int: "N", float: "NUMBER"}.get(plain[0] if plain else str, "TEXT")
