"""Programs: async functions marked as hybrid."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from pathlib import Path
from types import ModuleType
from typing import Any

from qtide.core.errors import QtideError, UsageError, own_lines
from qtide.core.plugins import Plugins
from qtide.core.resources import WHOLE, Needs

Playing = Coroutine[Any, Any, Any]
"""Coroutine of a program that has been called but is not running yet."""


class Program:
    """A hybrid program. Calling it returns the coroutine that a driver or another program runs."""

    def __init__(
        self,
        function: Callable[..., Coroutine[Any, Any, Any]],
        nodes: int | None = None,
        needs: str = "",
        payload: str = "",
    ) -> None:
        self.function = function
        self.nodes = nodes
        self.payload = payload
        self.needs = Needs.parse(needs) if needs else WHOLE
        update_wrapper(self, function)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    @property
    def signature(self) -> inspect.Signature:
        """The function's signature."""
        return inspect.signature(self.function)

    @property
    def from_run(self) -> list[str]:
        """Parameters that the run sets unless the user does."""
        parameters = self.signature.parameters
        own = [name for name in ("seed", "folder") if name in parameters]
        return [*own, "target"] if self.wants_target else own

    @property
    def wants_target(self) -> bool:
        """Whether `target` asks for the device it runs on, rather than being the program's own."""
        asked = self.signature.parameters.get("target")
        if asked is None:
            return False
        if asked.annotation is not asked.empty:
            return re.search(r"\bTarget\b", str(asked.annotation)) is not None
        return asked.default is asked.empty or asked.default is None

    def __call__(self, *args: Any, **kwargs: Any) -> Playing:
        """Return the coroutine, like a plain call of the function."""
        return self.function(*args, **kwargs)

    def prepare(self, args: list[Any], kwargs: dict[str, Any], **given: Any) -> Playing:
        """Create the coroutine for these arguments.

        What the run provides (its seed, folder and target) is passed to parameters of the same
        name unless the user gave them.
        """
        try:
            known = self.signature.bind_partial(*args, **kwargs).arguments
            missing = [name for name in self.from_run if name not in known]
            wanted = {name: given[name] for name in missing if name in given}
            bound = self.signature.bind(*args, **wanted | kwargs)
        except TypeError as error:
            raise UsageError(
                f"the arguments do not fit the program: {error}; it is {self.name}{self.signature}"
            ) from None
        return self.function(*bound.args, **bound.kwargs)


APPS: Plugins[Program] = Plugins("qtide.apps", "application")
"""Programs that can be run by name alone."""
_loading: list[str] = []


FLOWS = "qtide.interfaces.flow"
"""The module that reads flows; loaded by its name, as it stands above this one."""


def load(reference: str) -> Program:
    """Load a program: `clustering`, `file.py[:name]`, `package.module:name` or `flow.toml`."""
    if reference.endswith(".toml"):
        found: Program = importlib.import_module(FLOWS).load(Path(reference))
        return found
    where, colon, name = reference.partition(":")
    if where.endswith(".py"):
        return _pick(_from_file(Path(where)), name, reference)
    if colon:
        return _pick(_from_module(where), name, reference)
    return _application(reference)


def _application(name: str) -> Program:
    if name not in APPS.names():
        raise UsageError(
            f"{name!r} is not a program: give a file such as program.py or flow.toml, "
            f"a module:name, or one of the applications {', '.join(APPS.names())}"
        )
    found = APPS.load(name)
    if not isinstance(found, Program):
        raise UsageError(
            f"the application {name!r} is not a program, but {found!r}; tell its author"
        )
    return found


def located(reference: str) -> str:
    """Make a reference's file path absolute, so that it can be found from anywhere."""
    where, colon, name = reference.partition(":")
    is_file = where.endswith((".py", ".toml"))
    return f"{Path(where).absolute()}{colon}{name}" if is_file else reference


def _from_file(path: Path) -> ModuleType:
    """Import a file as Python would run it, so that it can import its neighbours, also on nodes."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}; name the program's Python file")
    loaded = sys.modules.get(path.stem)
    if loaded is not None and Path(loaded.__file__ or "").absolute() != path.absolute():
        raise UsageError(f"{path} has the name of another Python module; rename it")
    folder = str(path.absolute().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return _from_module(path.stem)


def loading() -> str | None:
    """Name of the program module being imported; None if there is none."""
    return _loading[-1] if _loading else None


def _from_module(name: str) -> ModuleType:
    _loading.append(name)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(f"the program {name} cannot be imported: {error}") from None
    except SyntaxError as error:
        raise UsageError(
            f"{error.filename}:{error.lineno} is not valid Python: {error.msg}"
        ) from None
    except QtideError:
        raise
    except (Exception, SystemExit) as error:
        lines = "".join(f"\n  {line}" for line in own_lines(error))
        raise UsageError(
            f"the program {name} cannot be imported: {type(error).__name__}: {error}{lines}"
        ) from error
    finally:
        _loading.pop()


def _pick(module: ModuleType, name: str, reference: str) -> Program:
    programs = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, Program)
        and f"{value.function.__module__}.".startswith(f"{module.__name__}.")
    }
    if name:
        if name not in programs:
            raise UsageError(f"{reference}: there is no program {name!r}; {_known(programs)}")
        return programs[name]
    if len(programs) != 1:
        raise UsageError(f"{reference}: which program is meant? {_known(programs)}")
    return next(iter(programs.values()))


def _known(programs: dict[str, Program]) -> str:
    if not programs:
        return "the file has none: mark an async function with @program"
    return f"it has {', '.join(programs)}; name one as FILE.py:NAME"
