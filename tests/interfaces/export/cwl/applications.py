"""The applications as one program, so that one run of an engine tries both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qtide import program, together
from qtide.apps.clustering.program import clustering
from qtide.apps.synthetic import synthetic

SHAPE = """
[[phase]]
tasks = [0.01, 0.02]
[[phase]]
quantum = 0.01
"""


@program
async def both(folder: Path = Path()) -> list[Any]:
    """The applications, side by side."""
    shape = folder / "shape.toml"
    shape.write_text(SHAPE)
    small = clustering(blobs=60, most=1, configuration="published", folder=folder)
    checked, clustered = await together(synthetic(str(shape)), small)
    del clustered["files"]  # their paths differ from run to run
    return [checked["checksum"], clustered]
