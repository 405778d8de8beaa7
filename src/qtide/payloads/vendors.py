"""Vendors' classes, told without importing their packages."""

from __future__ import annotations

import sys
from typing import Any


def is_of(value: Any, package: str, name: str) -> bool:
    """Whether it is of a vendor's class; nothing is before the vendor's package was imported."""
    module = sys.modules.get(package)
    return module is not None and isinstance(value, getattr(module, name))
