"""The command `qtide`: table of commands, options from files, errors as sentences."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

from qtide.core.errors import QtideError, UsageError
from qtide.core.log import printable
from qtide.core.version import __version__
from qtide.interfaces.cli.help import Context, PlainCommand, PlainGroup
from qtide.runs.settings import Settings, option_name, options_of, unknown

RUNS, TWIN, SERVICE, SITE = "Runs", "Twin", "Service", "Site"


@dataclass(frozen=True)
class CommandEntry:
    """A command: its heading, its place (`module:name` in this package) and a line of help.

    The module is imported only when the command is called.
    """

    heading: str
    place: str
    summary: str


COMMANDS = {
    "run": CommandEntry(RUNS, "run:run", "Run a hybrid program."),
    "submit": CommandEntry(
        RUNS, "run:submit", "Start a run in the background, with its own driver."
    ),
    "resume": CommandEntry(RUNS, "run:resume", "Continue a run that failed or was interrupted."),
    "cancel": CommandEntry(RUNS, "cancel:cancel", "Cancel a run, or a task at the service."),
    "list": CommandEntry(RUNS, "list:list_runs", "List the runs, newest last."),
    "show": CommandEntry(RUNS, "show:show", "Show the state of a run, and what it has used."),
    "logs": CommandEntry(RUNS, "logs:logs", "Show the output of a run's tasks."),
    "report": CommandEntry(RUNS, "show:report", "Write a run's timelines as one HTML page."),
    "compare": CommandEntry(RUNS, "compare:compare", "Run a program under several strategies."),
    "export": CommandEntry(
        RUNS, "export:export", "Export a program as a workflow, or a run as a record."
    ),
    "engine": CommandEntry(RUNS, "export:engine", "Install a workflow engine for qtide."),
    "mpi": CommandEntry(RUNS, "mpi:mpi", "Build and run malleable programs in C and Fortran."),
    "demo": CommandEntry(RUNS, "experiment:demo", "Show what qtide does, in two minutes."),
    "experiment": CommandEntry(
        RUNS, "experiment:experiment", "Measure what jobs gain by sharing a QPU."
    ),
    "reproduce": CommandEntry(
        RUNS, "experiment:reproduce", "Make published tables and figures again."
    ),
    "simulate": CommandEntry(TWIN, "twin:simulate", "Simulate the whole workload of a site."),
    "plan": CommandEntry(TWIN, "plan:plan", "Advise on strategies, virtual QPUs and growth."),
    "predict": CommandEntry(TWIN, "twin:predict", "Predict a program from its earlier runs."),
    "twin": CommandEntry(TWIN, "twin:twin", "Calibrate the twin of a site from real runs."),
    "serve": CommandEntry(SERVICE, "serve:serve", "Serve QPUs to many jobs at once."),
    "queue": CommandEntry(SERVICE, "service:queue", "Show your tasks at the service."),
    "devices": CommandEntry(SERVICE, "service:devices", "Show the devices of the service."),
    "estimate": CommandEntry(
        SERVICE, "service:estimate", "Show what a payload would take, and when it would start."
    ),
    "session": CommandEntry(
        SERVICE, "session:session", "Hold a device for a while, for a closed loop."
    ),
    "why": CommandEntry(SERVICE, "service:why", "Show why a task waits, and what would change it."),
    "usage": CommandEntry(SERVICE, "usage:usage", "Show the QPU seconds of users and accounts."),
    "allocations": CommandEntry(
        SERVICE, "allocations:allocations", "Limit what accounts and users may use in a period."
    ),
    "page": CommandEntry(SERVICE, "service:page", "Open the service's page, signed in."),
    "drain": CommandEntry(SERVICE, "service:drain", "Stop starting tasks on a device."),
    "maintenance": CommandEntry(
        SERVICE, "maintenance:maintenance", "Plan when a device starts no tasks."
    ),
    "token": CommandEntry(
        SERVICE, "serve:token", "Create, list and revoke tokens for the service."
    ),
    "audit": CommandEntry(SERVICE, "serve:audit", "Show who did what to the service."),
    "store": CommandEntry(
        SERVICE, "store:store", "Check, back up, restore and move the service's store."
    ),
    "box": CommandEntry(SITE, "box:box", "Start a real Slurm cluster on this computer."),
    "prolog": CommandEntry(
        SITE, "box:prolog", "Write the prolog that gives Slurm jobs their tokens."
    ),
    "reap": CommandEntry(SITE, "box:reap", "Cancel cluster jobs that dead drivers left behind."),
    "config": CommandEntry(
        SITE, "config:config", "Show which options apply, and where they come from."
    ),
}


INTERRUPTED = 130


def main(words: list[str] | None = None) -> None:
    """Run the command line."""
    words = sys.argv[1:] if words is None else words
    if words == ["--version"]:
        sys.stdout.write(f"qtide {__version__}\n")
        return
    try:
        application()(words, prog_name="qtide")
    except QtideError as error:
        if "--traceback" in words:
            raise
        _end(str(error), error.exit_code)
    except OSError as error:
        if "--traceback" in words:
            raise
        where = f"{error.filename}: " if error.filename else ""
        kept = words[:1] in (["run"], ["resume"], ["compare"])
        _end(f"{where}{error.strerror}{'; finished phases are kept' if kept else ''}", 1)
    except KeyboardInterrupt:
        _end("interrupted", INTERRUPTED)
    except BaseException as error:
        loaded = sys.modules.get("asyncio")  # most commands do not need it, and it is slow to load
        if loaded is None or not isinstance(error, loaded.CancelledError):
            raise
        _end(
            "interrupted; nodes and QPU were given back; continue with: qtide resume last",
            INTERRUPTED,
        )


def _end(sentence: str, code: int) -> None:
    sys.stderr.write(f"qtide: {printable(sentence)}\n")  # a service, or a run, may have written it
    sys.exit(code)


EPILOG = "Each command has --help with an example, and --json for scripts."


def common(
    config: Annotated[
        Path | None,
        typer.Option(
            help="Read options only from this file.  [default: ./qtide.toml and the user's]"
        ),
    ] = None,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show the traceback of an error.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Options of every command."""


def application() -> typer.Typer:
    """Build the command line."""
    app = typer.Typer(
        cls=Commands,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help="Share scarce quantum processors among the jobs of an HPC cluster.",
        epilog=EPILOG,
    )
    app.callback()(common)
    return app


class Commands(PlainGroup):
    """All commands; imports only the one that is called."""

    def __init__(self, **terms: Any) -> None:
        super().__init__(**terms)
        self.commands = {
            name: TyperCommand(name, short_help=each.summary) for name, each in COMMANDS.items()
        }

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Return the called command, with the options that its words and the files select."""
        name, command, words = super().resolve_command(ctx, args)
        if name is None:
            return name, command, words
        settings = Settings()
        with _unless_complete(ctx):
            settings = Settings.read(ctx.params.get("config"))
        command = load(name, words, settings, lenient=ctx.resilient_parsing)
        with _unless_complete(ctx):
            if settings.files:
                check(settings, name, command)
                for path, leaf in leaves(command, name):
                    settings.refuse_command_lines(path, _names(leaf))
        ctx.default_map = {name: settings.defaults(command, name)}
        return name, command, words

    def invoke(self, ctx: Context) -> Any:
        """Run the command; an error about a value from a file names the file."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            words = error.message.removeprefix("Value error, ")  # pydantic's
            error.message = words.partition(", unable to")[0]
            context, param = error.ctx, error.param
            if context and param and _source(context, param.name) == "DEFAULT_MAP":
                error.message += f" (in {Settings.read(ctx.params.get('config')).places()})"
            raise

    def format_commands(self, ctx: Context, formatter: Any) -> None:
        """Write the commands under their headings."""
        width = max(map(len, COMMANDS))
        for heading, entries in groupby(COMMANDS.items(), lambda item: item[1].heading):
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{width}}", each.summary) for name, each in entries])


def load(name: str, words: list[str], settings: Settings, *, lenient: bool = False) -> Any:
    """Load a command with the options that these words select."""
    place, _, attribute = COMMANDS[name].place.partition(":")
    module = import_module(f"qtide.interfaces.cli.{place}")
    command = getattr(module, attribute)
    if isinstance(command, typer.Typer):
        group: Any = get_command(command)
        for sub, each in getattr(module, "WITH_SPEC", {}).get(name, {}).items():
            own = words[1:] if words[:1] == [sub] else []
            group.add_command(_program(f"{name} {sub}", each, own, settings, lenient=lenient), sub)
        return group
    if getattr(command, "takes_spec", False):
        return _program(name, command, words, settings, lenient=lenient)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name, cls=PlainCommand)(command)
    return get_command(app)


def _program(
    name: str, command: Any, words: list[str], settings: Settings, *, lenient: bool
) -> Any:
    """Load a command that runs a program, with the options of the chosen plug-ins."""
    from qtide.interfaces.cli.run import program_command

    return program_command(name, command, words, settings, lenient=lenient)


def _source(ctx: Context, name: str) -> str | None:
    source = ctx.get_parameter_source(name)
    return source.name if source else None


def _unless_complete(ctx: Context) -> Any:
    """Ignore usage errors while the shell completes a line."""
    return suppress(UsageError) if ctx.resilient_parsing else nullcontext()


def check(settings: Settings, name: str, command: Any) -> None:
    """Refuse tables that name no command, and entries that name no option."""
    for file, key, value in settings.entries():
        if isinstance(value, dict) and key not in COMMANDS:
            raise unknown(file, key, f"there is no command for the table [{key}]", COMMANDS)
        if not isinstance(value, dict) and not _known_somewhere(key, command):
            raise unknown(file, key, f"no command has an option {key!r}", _every_name())
    _check_table(settings, (name,), command)


def leaves(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a command, or its subcommands, each with its full name."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, each in inner.items():
        yield from leaves(each, *path, name)


def _check_table(settings: Settings, path: tuple[str, ...], command: Any) -> None:
    inner = getattr(command, "commands", {})
    for file, key, value in settings.entries(*path):
        table = isinstance(value, dict)
        known = {*inner} if table else _names(command)
        if key not in known and not table:
            known |= _plugin_names(command)
        if key not in known:
            noun = "table" if table else "option"
            raise unknown(file, key, f"[{'.'.join(path)}] has no {noun} {key!r}", known)
    for name, each in inner.items():
        _check_table(settings, (*path, name), each)


def _known_somewhere(key: str, command: Any) -> bool:
    """Whether any command has the option; import as few commands as possible to find out."""
    from qtide.runs.spec import Spec

    near = key in _names(command) or key in Spec.__dataclass_fields__
    return near or key in _every_plugin_name() or key in _every_name()


def _names(command: Any) -> set[str]:
    """Return the options of a command or of its subcommands."""
    return {option_name(each) for _, leaf in leaves(command) for each in options_of(leaf)}


def _plugin_names(command: Any) -> set[str]:
    """Return the options a command would have with another cluster or strategy."""
    return _every_plugin_name() if "cluster" in _names(command) else set()


@cache
def _every_name() -> set[str]:
    """Return the options of all commands; this imports all of them."""
    loaded = (load(name, [], Settings()) for name in COMMANDS)
    return _every_plugin_name().union(*map(_names, loaded))


@cache
def _every_plugin_name() -> set[str]:
    from qtide.runs.run_options import others

    return {each.name for owned in others([]) for each in owned.options}
