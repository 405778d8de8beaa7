"""What an API is: a part of the paths, the routes there, and its own words for a refusal.

A package registers a callable in the group `qtide.apis` that makes one for a service.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter

from qtide.service.apis.access import Access
from qtide.service.service import Service

Said = dict[str, Any]
"""A refusal: `error` is its short name, `message` the sentence, and maybe more."""


@dataclass(frozen=True)
class Api:
    """One way to speak to the service."""

    prefix: str
    """The paths that are its own; of several that fit, the longest counts."""
    router: APIRouter
    refusal: Callable[[Said], Said] = lambda said: said
    """A refusal in its words."""
    life: Callable[[], AbstractAsyncContextManager[Any]] = nullcontext
    """What it needs from the start of the service to its end."""


MakeApi = Callable[[Service, Access], Api | None]
"""None, if the configuration does not ask for it."""
