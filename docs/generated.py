"""The pages of the site that are not files in docs/: made when mkdocs builds it.

Home is the README, the reference of commands is their own help, that of Python the docstrings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from typer.testing import CliRunner

import qtide
from qtide.backends.client.client import Client, RemoteTask
from qtide.backends.client.handle import QpuHandle
from qtide.backends.payloads.shots import Shots
from qtide.interfaces.cli.main import COMMANDS, application, load
from qtide.interfaces.python.compared import Comparison
from qtide.interfaces.python.run import Run
from qtide.interfaces.python.runnable import Action, Runnable, Using
from qtide.interfaces.sessions.session import Session
from qtide.interfaces.sessions.session_qpu import SessionQpu
from qtide.programs.phase import Task
from qtide.runs.settings import Settings

DOCS = Path(__file__).parent
ROOT = DOCS.parent
OWN = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "vulnerabilities.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files of the project that are pages of the site, by their names there."""
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")
OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)]+)\)")
PICTURE = re.compile(r"(!\[[^\]]*\]\()docs/")
SCRIPT = "assets/search-from-files.js"
THEMES = "https://unpkg.com/iframe-worker/shim"
"""What makes the search work from the file system: our script, and that of the theme."""
CLASSES = (
    *(Runnable, Using, Action, Run, Comparison, Session, SessionQpu),
    *(Task, QpuHandle, Client, RemoteTask, Shots),
)
"""What users hold in their hands besides the public names."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List all decisions in the navigation."""
    assert config.nav is not None
    _part(config.nav, "Decisions").extend(f"decisions/{file.name}" for file in _decisions())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is generated."""
    pages: dict[str, Callable[[], str]] = {
        "commands.md": commands,
        "python.md": python,
        "decisions/index.md": decisions,
    }
    for name, written in pages.items():
        files.append(File.generated(config, name, content=written()))
    for source, name in OWN.items():
        files.append(File.generated(config, name, content=_moved((ROOT / source).read_text())))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Indent lists as Python's Markdown wants them, and link the project's files to their pages."""
    up = "../" * (page.file.src_uri.count("/") + 1)
    here = OUTSIDE.sub(partial(_link_outside, up), markdown)
    return "\n".join(_indented(here.splitlines()))


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Search from the file system with a script of our own: the theme's is on another host."""
    return output.replace(THEMES, get_relative_url(SCRIPT, page.url))


def on_post_template(output: str, **_: Any) -> str:
    """The same for the page that is shown where there is none."""
    return output.replace(THEMES, f"/{SCRIPT}")


def commands() -> str:
    """Every command with its help, as the command line prints it."""
    parts = ["# Commands", help_text()]
    for name in COMMANDS:
        command = load(name, [], Settings())
        parts += [f"## qtide {name}", help_text(name)]
        for sub in getattr(command, "commands", ()):
            parts += [f"### qtide {name} {sub}", help_text(name, sub)]
    return "\n\n".join(parts)


def python() -> str:
    """The public names with their signatures and docstrings."""
    parts = ["# Python", inspect.getdoc(qtide) or "", "## Names of `qtide`"]
    for name in qtide.__all__:
        parts += _described(f"qtide.{name}", getattr(qtide, name), "###")
    parts.append("## Classes")
    for each in CLASSES:
        parts += _described(f"{each.__module__}.{each.__name__}", each, "###")
        for name, member in inspect.getmembers(each):
            if name.startswith("_"):
                continue
            if inspect.isfunction(member):
                parts += _described(f"{each.__name__}.{name}", member, "####")
            elif isinstance(member, property):
                parts += [f"#### `{each.__name__}.{name}`", _plain(inspect.getdoc(member) or "")]
    return "\n\n".join(parts)


def decisions() -> str:
    """The list of all decisions, each by its title."""
    lines = [f"- [{file.name[:4]}]({file.name}): {_title(file)}" for file in _decisions()]
    return "\n".join(["# Decisions", "", "Why it is as it is.", "", *lines])


def help_text(*words: str) -> str:
    """The help of a command, as a block."""
    done = CliRunner().invoke(application(), [*words, "--help"], prog_name="qtide")
    return f"```text\n{done.output.strip()}\n```"


def _described(name: str, thing: Any, heading: str) -> Iterator[str]:
    """A heading, the signature and the docstring."""
    yield f"{heading} `{name}`"
    yield f"```python\n{name.rpartition('.')[2]}{_signature(thing)}\n```"
    yield _plain(inspect.getdoc(thing) or "")


def _signature(thing: Any) -> str:
    """What it takes; of an exception, what it is a kind of."""
    if isinstance(thing, type) and issubclass(thing, Exception):
        return f"({', '.join(base.__name__ for base in thing.__bases__)})"
    return str(inspect.signature(thing)).replace("'", "")


def _plain(docstring: str) -> str:
    """Docstrings are text, not Markdown, but for backquotes."""
    return re.sub(r"([*_<])", r"\\\1", docstring)


def _decisions() -> list[Path]:
    return sorted((DOCS / "decisions").glob("[0-9]*.md"))


def _part(nav: list[Any], title: str) -> list[Any]:
    """The pages under a heading of the navigation."""
    found: list[Any] = next(entry[title] for entry in nav if title in entry)
    return found


def _title(file: Path) -> str:
    return file.read_text().partition("\n")[0].removeprefix("# ")


def _moved(text: str) -> str:
    """A file of the project with links that fit the site; what is not on it becomes plain text."""
    return LINK.sub(_link, PICTURE.sub(r"\1", text))


def _link(found: re.Match[str]) -> str:
    label, target, anchor = found[1], found[2], found[3] or ""
    if target in OWN:
        return f"[{label}]({OWN[target]}{anchor})"
    if target == "docs/decisions/":
        return f"[{label}](decisions/index.md)"
    if target.startswith("docs/"):
        return f"[{label}]({target.removeprefix('docs/')}{anchor})"
    return f"`{label}`"


def _link_outside(up: str, found: re.Match[str]) -> str:
    """A link from docs/ to a file of the project: to its page, or plain text if it has none."""
    label, target = found[1], found[2]
    if not target.startswith(up):
        return found[0]
    name = OWN.get(target.removeprefix(up))
    return f"[{label}]({up.removesuffix('../')}{name})" if name else label


def _indented(lines: Iterable[str]) -> Iterator[str]:
    """In lists, GitHub takes an indentation of three spaces, Python's Markdown only one of four."""
    in_code = False
    for line in lines:
        in_code ^= line.startswith("```")
        yield f" {line}" if line.startswith("   ") and not in_code else line
