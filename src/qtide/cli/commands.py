"""All commands: where each is, the heading it is listed under, and what it does."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import groupby
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

from qtide.cli.help import Context, PlainCommand, PlainGroup
from qtide.errors import UsageError
from qtide.runs.settings import Settings

RUNS, TWIN, SERVICE, SITE = "Runs", "Twin", "Service", "Site"


@dataclass(frozen=True)
class Entry:
    """A command: a module of this package and a name in it; it is imported when it is called."""

    heading: str
    place: str
    summary: str


COMMANDS = {
    "run": Entry(RUNS, "run:run", "Run a hybrid program."),
    "submit": Entry(RUNS, "submit:submit", "Start a run in the background, with its own driver."),
    "resume": Entry(RUNS, "resume:resume", "Continue a run that failed or was interrupted."),
    "cancel": Entry(RUNS, "cancel:cancel", "Cancel a run, or a task at the service."),
    "list": Entry(RUNS, "list:list_runs", "List the runs, newest last."),
    "show": Entry(RUNS, "show:show", "Show where a run stands, and what it has held."),
    "logs": Entry(RUNS, "logs:logs", "Show what a run's tasks print."),
    "report": Entry(RUNS, "report:report", "Write a run's timelines as one HTML page."),
    "compare": Entry(RUNS, "compare:compare", "Run a program under several strategies."),
    "export": Entry(
        RUNS, "export:export", "Write a workflow for other engines, or a run's record."
    ),
    "engine": Entry(RUNS, "engine:engine", "Install a workflow engine that qtide can use."),
    "demo": Entry(RUNS, "demo:demo", "Show in two minutes what qtide does."),
    "experiment": Entry(RUNS, "experiment:experiment", "Measure what jobs gain that share a QPU."),
    "simulate": Entry(TWIN, "simulate:simulate", "Simulate a site's whole workload."),
    "plan": Entry(TWIN, "plan:plan", "Advise on strategies, virtual QPUs and growth."),
    "twin": Entry(TWIN, "twin:twin", "Calibrate the twin of a site from real runs."),
    "serve": Entry(SERVICE, "serve:serve", "Serve QPUs to many jobs at once."),
    "queue": Entry(SERVICE, "queue:queue", "Show your tasks at the service."),
    "devices": Entry(SERVICE, "devices:devices", "Show the devices of the service."),
    "usage": Entry(SERVICE, "usage:usage", "Show who used how many QPU seconds."),
    "drain": Entry(SERVICE, "drain:drain", "Let a device start no new task."),
    "token": Entry(SERVICE, "token:token", "Create, list and revoke tokens for the service."),
    "box": Entry(SITE, "box:box", "Start a real Slurm cluster on this computer."),
    "prolog": Entry(SITE, "prolog:prolog", "Write the prolog that gives Slurm jobs their tokens."),
    "reap": Entry(SITE, "reap:reap", "Cancel what dead drivers left in the cluster's queue."),
    "config": Entry(SITE, "config:config", "Show which options apply, and where they come from."),
}


class Commands(PlainGroup):
    """The command `qtide`: knows all commands, and imports the one that is called."""

    def __init__(self, **terms: Any) -> None:
        super().__init__(**terms)
        self.commands = {
            name: TyperCommand(name, short_help=each.summary) for name, each in COMMANDS.items()
        }

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        """The command that is called, with the options that its words and the files choose."""
        name, command, words = super().resolve_command(ctx, args)
        if name is None:
            return name, command, words
        settings = Settings()
        with _unless_complete(ctx):
            settings = Settings.read(ctx.params.get("config"))
        command = load(name, words, settings, lenient=ctx.resilient_parsing)
        with _unless_complete(ctx):
            _check(settings, name, command)
        ctx.default_map = {name: settings.defaults(command, name)}
        return name, command, words

    def invoke(self, ctx: Context) -> Any:
        """Run the command; an error about a value from a file names the file."""
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
                formatter.write_dl([(f"{name:<10}", each.summary) for name, each in entries])


def load(name: str, words: list[str], settings: Settings, *, lenient: bool = False) -> Any:
    """A command, with the options that these words choose."""
    place, _, attribute = COMMANDS[name].place.partition(":")
    module = import_module(f"qtide.cli.{place}")
    command = getattr(module, attribute)
    if isinstance(command, typer.Typer):
        group: Any = get_command(command)
        for sub, each in getattr(module, "WITH_SPEC", {}).items():
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
    """A command that runs a program, with the options of the plug-ins that it chooses."""
    from qtide.cli.program import program_command

    return program_command(name, command, words, settings, lenient=lenient)


def _check(settings: Settings, name: str, command: Any) -> None:
    """Refuse unknown names in files."""
    if settings.files:
        from qtide.cli.known import check

        check(settings, name, command)


def _source(ctx: Context, name: str) -> str | None:
    source = ctx.get_parameter_source(name)
    return source.name if source else None


def _unless_complete(ctx: Context) -> Any:
    """Ignore errors in a line while a shell completes it."""
    return suppress(UsageError) if ctx.resilient_parsing else nullcontext()
