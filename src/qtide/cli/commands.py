"""The commands there are: where each is, under which heading it stands, and what it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import groupby
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

from qtide.cli.help import Context, PlainCommand, PlainGroup
from qtide.cli.settings import Settings, option_name, options_of, unknown
from qtide.errors import UsageError

RUNS, SERVICE, SITE = "Runs", "Service", "Site"


@dataclass(frozen=True)
class Entry:
    """A command: a module of this package and a name in it; it is imported when it is called."""

    heading: str
    place: str
    summary: str


COMMANDS = {
    "run": Entry(RUNS, "run:run", "Run a hybrid program."),
    "submit": Entry(RUNS, "submit:submit", "Start a run with a driver of its own, and return."),
    "resume": Entry(RUNS, "resume:resume", "Go on with a run that failed or was interrupted."),
    "cancel": Entry(RUNS, "cancel:cancel", "End a run, from any machine that sees its folder."),
    "list": Entry(RUNS, "list:list_runs", "List the runs, newest last."),
    "show": Entry(RUNS, "show:show", "Show where a run stands, and what it has held."),
    "report": Entry(RUNS, "report:report", "Write a run's timelines as one HTML page."),
    "compare": Entry(RUNS, "compare:compare", "Run a program under several strategies."),
    "serve": Entry(SERVICE, "serve:serve", "Serve QPUs to many jobs at once."),
    "queue": Entry(SERVICE, "queue:queue", "Show your tasks at the service."),
    "devices": Entry(SERVICE, "devices:devices", "Show the devices of the service."),
    "usage": Entry(SERVICE, "usage:usage", "Account for seconds of the QPUs."),
    "drain": Entry(SERVICE, "drain:drain", "Let a device begin no new task."),
    "token": Entry(SERVICE, "token:token", "Make, list and revoke tokens for the service."),
    "box": Entry(SITE, "box:box", "Put up a real Slurm cluster on this machine."),
    "prolog": Entry(SITE, "prolog:prolog", "Write the prolog that gives Slurm jobs their tokens."),
    "reap": Entry(SITE, "reap:reap", "Cancel what dead drivers left in the cluster's queue."),
    "config": Entry(SITE, "config:config", "Show which options hold, and where they come from."),
}


class Commands(PlainGroup):
    """The command `qtide`: knows all commands, and imports the one that is called."""

    def __init__(self, **terms: Any) -> None:
        super().__init__(**terms)
        self.commands = {
            name: TyperCommand(name, short_help=each.summary) for name, each in COMMANDS.items()
        }

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        """The command that is meant, with the options that its words and the files ask for."""
        name, command, words = super().resolve_command(ctx, args)
        if name is None:
            return name, command, words
        settings = Settings()
        with _unless_complete(ctx):
            settings = Settings.read(ctx.params.get("config"))
        command = load(name, words, settings, lenient=ctx.resilient_parsing)
        with _unless_complete(ctx):
            check_settings(settings, name, command)
        ctx.default_map = {name: settings.defaults(command, name)}
        return name, command, words

    def invoke(self, ctx: Context) -> Any:
        """Run the command; a wrong value from a file is told with the file."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            context, param = error.ctx, error.param
            if context and param and _source(context, param.name) == "DEFAULT_MAP":
                error.message += f" (in {Settings.read(ctx.params.get('config')).places()})"
            raise

    def format_commands(self, ctx: Context, formatter: Any) -> None:
        """Write the commands under their headings."""
        for heading, entries in groupby(COMMANDS.items(), lambda item: item[1].heading):
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<7}", each.summary) for name, each in entries])


def load(name: str, words: list[str], settings: Settings, *, lenient: bool = False) -> Any:
    """A command, ready to be called with these words."""
    module, _, attribute = COMMANDS[name].place.partition(":")
    command = getattr(import_module(f"qtide.cli.{module}"), attribute)
    if isinstance(command, typer.Typer):
        return get_command(command)
    if getattr(command, "takes_spec", False):
        from qtide.cli.program import program_command

        return program_command(name, command, words, settings, lenient=lenient)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name, cls=PlainCommand)(command)
    return get_command(app)


def check_settings(settings: Settings, name: str, command: Any) -> None:
    """Refuse tables of no command, and entries that the command, or any command, does not know."""
    for file, key, value in settings.entries():
        if isinstance(value, dict):
            if key not in COMMANDS:
                raise unknown(file, key, f"there is no command for the table [{key}]", COMMANDS)
        elif not _known_somewhere(key, command):
            raise unknown(file, key, f"no command has an option {key!r}", every_name())
    for path, each in leaves(name, command):
        for file, key, value in settings.entries(*path):
            if not isinstance(value, dict) and key not in (known := names_of(each)):
                known = known | (_plugin_names() if "cluster" in known else set())
                if key not in known:
                    raise unknown(file, key, f"[{'.'.join(path)}] has no option {key!r}", known)


def _known_somewhere(key: str, command: Any) -> bool:
    """Whether any command has the option; the fewer are imported to know, the better."""
    from qtide.runs.spec import Spec

    near = key in names_of(command) or key in Spec.__dataclass_fields__
    return near or key in _plugin_names() or key in every_name()


def leaves(name: str, command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command, or those that it is made of, each with its full name."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield (name,), command
        return
    for each, subcommand in inner.items():
        yield (name, each), subcommand


def names_of(command: Any) -> set[str]:
    """The options of a command, or of those that it is made of."""
    return {option_name(each) for _, leaf in leaves("", command) for each in options_of(leaf)}


@cache
def every_name() -> set[str]:
    """The options of all commands, which takes importing all of them."""
    loaded = (load(name, [], Settings()) for name in COMMANDS)
    return _plugin_names().union(*map(names_of, loaded))


@cache
def _plugin_names() -> set[str]:
    from qtide.cli.owners import others

    return {each.name for owned in others([]) for each in owned.options}


def _source(ctx: Context, name: str) -> str | None:
    source = ctx.get_parameter_source(name)
    return source.name if source else None


def _unless_complete(ctx: Context) -> Any:
    """While a shell completes a line, what is wrong in it is nobody's business yet."""
    return suppress(UsageError) if ctx.resilient_parsing else nullcontext()
