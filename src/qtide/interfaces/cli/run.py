"""qtide run, submit and resume: run a program under a strategy."""

from __future__ import annotations

import inspect
import json as json_text
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import pairwise
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.main import get_command

from qtide.backends.devices.device import DEVICES
from qtide.backends.devices.profile import profiles
from qtide.core.errors import QtideError, UsageError
from qtide.core.metrics import measure
from qtide.core.options import Declared
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, say, show_table, stdout_for_json, terminal, warn
from qtide.interfaces.cli.help import Context, PlainCommand
from qtide.interfaces.cli.service import Url, client, resume_device
from qtide.interfaces.progress import TerminalProgress, scale_of
from qtide.programs.arguments import UnknownOption, rows
from qtide.programs.program import APPS, Program, load, located
from qtide.runs.comparison import Case
from qtide.runs.driver import Outcome, plain, play, remedy, sentence
from qtide.runs.earlier import durations, precedent_notes
from qtide.runs.folder import RunFolder, open_ended
from qtide.runs.run_options import (
    CORE,
    REGISTRIES,
    SHARED,
    OptionOwner,
    Owned,
    distinct,
    foreign,
    others,
    owner,
    plugin_value,
    several,
)
from qtide.runs.settings import Settings, option_name
from qtide.runs.spec import Spec
from qtide.runs.start import ADVISERS, BACKGROUND, check_driver, create, launch, unless_refused


def takes_spec(command: Callable[..., None]) -> Callable[..., None]:
    """Mark a command whose parameter `spec` stands for a program and the options of a run."""
    command.takes_spec = True  # type: ignore[attr-defined]  # a mark for the loader
    return command


@takes_spec
def run(
    spec: Spec,
    watch: Annotated[
        bool, typer.Option("--watch", help="Draw the timeline of nodes, QPU and queue meanwhile.")
    ] = False,
    name: shared_options.Name = "",
    runs: shared_options.Runs = shared_options.RUNS,
    json: shared_options.Json = False,
) -> None:
    """Run a hybrid program; options that qtide does not know are passed to it.

    Example: qtide run synthetic published --time-scale 0.01
    """
    with unless_refused(folder := create(spec, runs, name)):
        play_one(folder, json_wanted=json, watch=watch)


@takes_spec
def submit(
    spec: Spec,
    driver: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="background: a process on this host; or a kind of cluster: a job there.",
            autocompletion=shared_options.driver_places,
        ),
    ] = BACKGROUND,
    driver_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPTION",
            help="Option for the driver's job, as --driver-option=--time=60; may be repeated.",
        ),
    ] = None,
    name: shared_options.Name = "",
    runs: shared_options.Runs = shared_options.RUNS,
    json: shared_options.Json = False,
) -> None:
    """Start a run and return; follow it with `qtide show`, cancel it with `qtide cancel`.

    Example: qtide submit synthetic --time-scale 0.1 --name night
    """
    check_driver(driver)
    run = create(spec, runs, name)
    where = launch(run, driver, driver_option)
    if json:
        as_json({"run": run.name, "folder": str(run.path), "driver": where})
    else:
        say(f"{run.name} is driven by {where}; follow it with: qtide show {quote(run.name)}")


def resume(
    run: shared_options.Run = "",
    device: Annotated[
        str,
        typer.Option(
            help="Resume this device of the vQPU service instead of a run. For operators."
        ),
    ] = "",
    url: Url = None,
    runs: shared_options.Runs = shared_options.RUNS,
    json: shared_options.Json = False,
) -> None:
    """Resume a run that failed, was interrupted or was killed; finished phases are not repeated.

    Example: qtide resume last
    """
    if bool(run) == bool(device):
        raise UsageError("name either a run, or a device with --device")
    if device:
        resume_device(device, url, json_wanted=json)
        return
    folder = _found(runs, run, url).trusted()
    if folder.state == "done":
        warn(f"{folder.name} is done already; its result comes from the journal")
    play_one(folder, json_wanted=json)


def _found(runs: Path, name: str, url: str | None) -> RunFolder:
    """Find a run by name; if the name is a device's, the error says how to resume that."""
    try:
        return RunFolder.find(runs, name)
    except UsageError as error:
        if name in _device_names(url):
            raise UsageError(
                f"{error}; {name} is a device of the service: qtide resume --device {name}"
            ) from None
        raise


def _device_names(url: str | None) -> list[str]:
    """Return the service's device names; none if it does not answer."""
    try:
        return [str(each["name"]) for each in client(url).devices()]
    except QtideError:
        return []


def play_one(run: RunFolder, *, json_wanted: bool, watch: bool = False) -> None:
    """Execute a run, showing its progress or its timeline, and then its result."""
    with stdout_for_json(wanted=json_wanted):
        if watch:
            from rich.console import Console  # only this needs it

            from qtide.interfaces.report.live_picture import watching

            with watching(run, Console(stderr=True, soft_wrap=True)):
                outcome = play(run, lambda *_: None)
        else:
            progress = TerminalProgress(terminal(), lines=True, scale=scale_of(run.spec))
            with progress.shown():
                outcome = play(run, progress.tell)
    if outcome.error is not None:
        raise _failure(outcome)
    _show(outcome, json_wanted=json_wanted)


def _show(outcome: Outcome, *, json_wanted: bool) -> None:
    run = outcome.run
    metrics = measure(run.intervals())
    value = plain(outcome.value)
    if json_wanted:
        described = {"run": run.name, "folder": str(run.path), "state": run.state}
        figures = {"value": value, "metrics": metrics.as_dict()}
        as_json(described | figures | {"durations": durations(run)})
        return
    show_table([Case(run.spec.strategy, 1, (run,))])
    for note in (*precedent_notes([run]), *filter(None, [open_ended(run)])):
        say(note)
    say(f"result: {json_text.dumps(value)}")
    say(f"run {run.name} is in {run.path}; see it with: qtide report {quote(run.name)}")


def _failure(outcome: Outcome) -> QtideError:
    assert outcome.error is not None
    text = sentence(outcome.error)
    if isinstance(outcome.error, QtideError):
        return outcome.error
    todo = f"{remedy(outcome.error)}, then: qtide resume {quote(outcome.run.name)}"
    return ProgramFailed(f"{text}\nfinished phases are kept; {todo}")


class ProgramFailed(QtideError):  # noqa: N818 - the name says what happened
    """The program itself failed; the message says what to do next."""


PANEL = "rich_help_panel"


def core_parameters() -> dict[str, inspect.Parameter]:
    """Return the options of every run, by their names in `Spec`."""
    types, usual = get_type_hints(Spec), Spec("")
    return {
        name: _keyword(name, types[name], getattr(usual, name), **terms)
        for name, terms in _core_terms().items()
    }


def program_parameter() -> inspect.Parameter:
    """Return the argument PROGRAM; options unknown to qtide are passed to the program."""
    text = f"FILE.py[:NAME], FLOW.toml, MODULE:NAME, or {', '.join(APPS.names())}."
    argument = typer.Argument(metavar="PROGRAM", help=text, autocompletion=shared_options.programs)
    return inspect.Parameter(
        "program", inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[str, argument]
    )


def plugin_parameter(owner: OptionOwner, declared: Declared, *, hidden: bool) -> inspect.Parameter:
    """Return a plug-in's option as a Typer parameter."""
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
            "help": f"Allocation strategy: {strategies}, or {advisers}.",
            "metavar": "NAME",
            "autocompletion": shared_options.strategies_and_advisers,
        },
        "cluster": {
            "help": f"Cluster: {kinds}.",
            "metavar": "KIND",
            "autocompletion": shared_options.clusters,
        },
        "nodes": {"help": "Most nodes that a job may hold.  [default: all]"},
        "qpu": {
            "help": f"Device ({', '.join(DEVICES.names())}), timing "
            f"({', '.join(sorted(profiles()))}) or both, as gate:photonic,qubits=7; or a service's,"
            " as http://HOST:PORT/DEVICE.  [default: by the payload]",
            "show_default": False,
            "metavar": "DEVICE",
            "autocompletion": shared_options.qpus,
        },
        "vqpus": {"help": "Virtual QPUs that share the device."},
        "time_scale": {"help": "Real seconds per second of the run."},
        "seed": {"help": "Seed of all random numbers."},
        "modules": {
            "help": "Environment modules of commands, as 'gcc/13'.",
            "metavar": "NAMES",
        },
        "wrapper": {
            "help": "Words before commands, as 'apptainer exec x.sif'.",
            "metavar": "WORDS",
        },
        "launcher": {
            "help": "What starts MPI commands.  [default: mpiexec]",
            "metavar": "WORDS",
        },
        "needs": {
            "help": "What tasks need, as cores=4.  [default: a whole node]",
            "metavar": "NEEDS",
            "show_default": False,
        },
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
    """Return the placeholder of a value in the help."""
    plain = [each for each in get_args(kind) or (kind,) if each not in (type(None), ...)]
    return {int: "N", float: "NUMBER"}.get(plain[0] if plain else str, "TEXT")


OWN_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Context settings that pass unknown options and arguments to the program."""


def program_command(
    name: str, command: Callable[..., None], words: list[str], settings: Settings, *, lenient: bool
) -> Any:
    """Build the command with the options of the plug-ins that the words or settings choose.

    The name of a subcommand begins with that of its group.
    """
    try:
        chosen = list(_chosen(name, command, words, settings))
    except UsageError:
        if not lenient:
            raise
        chosen = []
    own = _own(words)
    unchosen = list(others(chosen)) if _unknown(own, command, chosen) else []
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    full = _with_options(command, chosen, unchosen, parted=own != words, settings=settings)
    epilog = f"Options of another cluster or strategy: qtide {name} {_example(chosen)} --help"
    own_name = name.rpartition(" ")[2]
    app.command(own_name, cls=ProgramCommand, context_settings=OWN_ARGUMENTS, epilog=epilog)(full)
    return get_command(app)


class ProgramCommand(PlainCommand):
    """A command whose help ends with the program's arguments, if a program is named."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Find the program before parsing, since help is shown during parsing."""
        if "--help" in _own(args):
            known, _, _ = self.make_parser(ctx).parse_args(list(args))
            ctx.meta["program"] = known.get("program")
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        """Add the program's arguments, which may be anywhere among qtide's."""
        return [*super().collect_usage_pieces(ctx), "[ARGUMENTS]"]

    def format_options(self, ctx: Context, formatter: Any) -> None:
        """Write qtide's options, then the program's."""
        super().format_options(ctx, formatter)
        if isinstance(named := ctx.meta.get("program"), str):
            program = load(located(named))
            about = (inspect.getdoc(program.function) or "").partition("\n")[0]
            with formatter.section(f"Arguments of {program.name}"):
                if about:
                    formatter.write_text(about)
                taken = {option_name(each) for each in self.params}
                formatter.write_dl(rows(program, taken) or [("none", "")])


def _own(words: list[str]) -> list[str]:
    """Return the words before `--`; those after it belong to the program."""
    return words[: words.index("--")] if "--" in words else words


def _said(words: list[str], option: str) -> list[str]:
    """Return all values of an option in the words."""
    flag = f"--{option}"
    pairs = pairwise([*words, ""])
    found = (
        after if word == flag else word.removeprefix(f"{flag}=")
        for word, after in pairs
        if word == flag or word.startswith(f"{flag}=")
    )
    return [each for each in found if each]


def _chosen(
    name: str, command: Callable[..., None], words: list[str], settings: Settings
) -> Iterator[OptionOwner]:
    """Yield the chosen cluster and strategies."""
    cluster = _choice("cluster", name, words, settings)[-1:] or [Spec("").cluster]
    yield owner("cluster", cluster[0].partition(":")[0])
    given = _choice("strategy", name, words, settings)
    if (
        "strategy" in inspect.signature(command).parameters
    ):  # compare takes several; by default, all
        for each in given or REGISTRIES["strategy"].names():
            yield owner("strategy", each)
    else:
        yield owner("strategy", (given or [Spec("").strategy])[-1])


def _choice(option: str, name: str, words: list[str], settings: Settings) -> list[str]:
    if said := _said(_own(words), option):
        return said
    found = settings.find(tuple(name.split()), option)
    value = found[0] if found else []
    return [str(each) for each in value] if isinstance(value, list) else [str(value)]


def _unknown(words: list[str], command: Callable[..., None], chosen: list[OptionOwner]) -> bool:
    """Whether some option may belong to another plug-in; only then are all plug-ins loaded."""
    known = {*CORE, *inspect.signature(command).parameters, "help"}
    known |= {each.name for owned in chosen for each in owned.options}
    given = {word[2:].partition("=")[0].replace("-", "_") for word in words if word[:2] == "--"}
    return not given <= known


def _example(chosen: list[OptionOwner]) -> str:
    """Return another choice as an example for the help."""
    taken = {(each.choice, each.name) for each in chosen}
    free = [
        f"--{choice} {name}"
        for choice, registry in REGISTRIES.items()
        for name in registry.names()[::-1]
        if (choice, name) not in taken
    ]
    return free[0] if free else ""


def _with_options(
    command: Callable[..., None],
    chosen: list[OptionOwner],
    unchosen: list[OptionOwner],
    *,
    parted: bool,
    settings: Settings,
) -> Callable[..., None]:
    """Replace the command's parameter `spec` by a program and all options."""
    own = inspect.signature(command, eval_str=True).parameters
    core = {name: each for name, each in core_parameters().items() if name not in own}
    if "jobs" in own:  # a comparison has at least one virtual QPU per job
        terms = _core_terms()["vqpus"] | {"show_default": "as many as jobs"}
        core["vqpus"] = _keyword("vqpus", int, core["vqpus"].default, **terms)
    mine = distinct(chosen, {*core, *own})
    theirs = distinct(unchosen, {*core, *own, *mine})

    @wraps(command)
    def with_options(context: typer.Context, program: str, **given: Any) -> None:
        with stdout_for_json(wanted=given.get("json", False)):  # a program may print while it loads
            if not parted:
                _refuse_ambiguous(context, load(located(program)))
            _refuse_foreign(context, theirs, chosen)
            given = {name: value for name, value in given.items() if name not in theirs}
            shared_options = {
                name: plugin_value(each, given.pop(name)) for name, (_, each) in mine.items()
            }
            terms = {name: given.pop(name) for name in core}
            spec = Spec(located(program), context.args, options=shared_options, **terms)
            try:
                command(spec, **given)
            except UnknownOption as error:
                raise error.among([*core, *own, *mine, *theirs]) from None

    parameters = [
        inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
        program_parameter(),
        *core.values(),
        *(_by_keyword(each) for name, each in own.items() if name != "spec"),
        *(plugin_parameter(*each, hidden=False) for each in mine.values()),
        *(plugin_parameter(*each, hidden=True) for each in theirs.values()),
    ]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_options


def _by_keyword(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _typed(context: typer.Context, name: str) -> bool:
    """Whether an option was given on the command line itself."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _refuse_ambiguous(context: typer.Context, program: Program) -> None:
    """Refuse an option that both qtide and the program define: it is ambiguous."""
    for name in program.signature.parameters:
        if name not in ("program", *SHARED) and _typed(context, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} is an option of qtide and of {program.name}: give the program's after "
                f"`--`, as in `PROGRAM -- {option} ...`, and qtide's before it"
            )


def _refuse_foreign(context: typer.Context, theirs: Owned, chosen: list[OptionOwner]) -> None:
    """Refuse an option of a plug-in that was not chosen: it would have no effect."""
    for name, (whose, _) in theirs.items():
        if _typed(context, name):
            raise foreign(name, whose, chosen)
