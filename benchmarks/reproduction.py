"""`qtide reproduce` in quick mode: its time, its verdicts, and the published values that it meets.

Run it on a quiet machine: python benchmarks/reproduction.py
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from claims import at_least, at_most, conclude

from qtide.experiments.reproduction.reproduction import ITEMS, reproduce, write

MINUTES = 12


def main() -> None:
    """Make everything, or the items that are named, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("item", nargs="*", help="by default all of them")
    parser.add_argument("--folder", type=Path, help="keeps the runs there, and continues them")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="qtide-reproduction-"))
    began = time.monotonic()
    results = reproduce(folder, options.item, tell=print)
    minutes = (time.monotonic() - began) / 60
    write(folder, results, quick=True)
    tables = [each for each in results if each.name in ("table-1", "table-2")]
    values = [value for each in tables for value in each.values if value.published is not None]
    advances = [one.holds for each in tables for one in each.advances]
    print(f"page: {folder / 'reproduction.html'}")
    conclude(
        "reproduction",
        [
            at_most("quick mode, min", minutes, MINUTES),
            at_least("items with a verdict", len(results), len(options.item or ITEMS)),
            at_most("items not run", sum(each.verdict == "not run" for each in results), 0),
            at_least("Qluster values met", sum(value.is_met for value in values), 24),
            at_least("statements on elastic that hold", sum(advances), len(advances) or 1),
        ],
    )


if __name__ == "__main__":
    main()
