"""Programs: async functions marked as hybrid."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any

from qtide.errors import UsageError

Playing = Coroutine[Any, Any, Any]
"""The coroutine of a program that was called but is not running yet."""


class Program:
    """A hybrid program. Calling it gives the coroutine that a driver or another program runs."""

    def __init__(
        self, function: Callable[..., Coroutine[Any, Any, Any]], nodes: int | None = None
    ) -> None:
        self.function = function
        self.nodes = nodes
        update_wrapper(self, function)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    @property
    def signature(self) -> inspect.Signature:
        """The parameters of the function."""
        return inspect.signature(self.function)

    @property
    def from_run(self) -> list[str]:
        """The parameters that the run sets, unless the user does."""
        parameters = self.signature.parameters
        own = [name for name in ("seed", "folder") if name in parameters]
        return [*own, "target"] if self.wants_target else own

    @property
    def wants_target(self) -> bool:
        """Whether it asks for the device it runs on: others have a `target` of their own."""
        asked = self.signature.parameters.get("target")
        if asked is None:
            return False
        if asked.annotation is not asked.empty:
            return re.search(r"\bTarget\b", str(asked.annotation)) is not None
        return asked.default is asked.empty or asked.default is None

    def __call__(self, *args: Any, **kwargs: Any) -> Playing:
        """The coroutine, as a plain call of the function gives it."""
        return self.function(*args, **kwargs)

    def prepare(self, args: list[Any], kwargs: dict[str, Any], **given: Any) -> Playing:
        """The coroutine for these arguments.

        What the run provides (its seed, its folder, its target) is passed to parameters of that
        name, unless the user gave them.
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
