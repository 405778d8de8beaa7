"""How strictly a site file is read: unknown keys and infinite numbers are mistakes."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge

STRICT = {"extra": "forbid", "allow_inf_nan": False}
"""The configuration of every part of a site, read by pydantic alone."""

Seconds = Annotated[float, Ge(0)]
