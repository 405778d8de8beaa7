"""Vendors' classes, recognised without importing their packages."""

from __future__ import annotations

import sys
from typing import Any


def is_of(value: Any, package: str, name: str) -> bool:
    """Whether it is of a vendor's class; never true before the vendor's package is imported."""
    module = sys.modules.get(package)
    return module is not None and isinstance(value, getattr(module, name))
