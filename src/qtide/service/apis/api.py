"""What an API is: a prefix of the paths, the routes there, and its own format of a refusal.

A package registers a callable in the group `qtide.apis` that takes a service and returns one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter

from qtide.service.apis.access import Access
from qtide.service.service import Service

Said = dict[str, Any]
"""A refusal: `error` is its short name, `message` the sentence; there may be more fields."""


@dataclass(frozen=True)
class Api:
    """One way to call the service."""

    prefix: str
    """The prefix of its paths; of several that match, the longest counts."""
    router: APIRouter
    refusal: Callable[[Said], Said] = lambda said: said
    """A refusal in its own format."""
    public: Collection[str] = ()
    """Paths, as `/prefix/hello`, or prefixes that end in a slash, where no token is needed."""
    life: Callable[[], AbstractAsyncContextManager[Any]] = nullcontext
    """A context that is open from the start of the service to its end."""


MakeApi = Callable[[Service, Access], Api | None]
"""None if the configuration does not ask for it."""
