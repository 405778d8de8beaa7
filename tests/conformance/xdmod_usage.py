"""XDMoD's shredder reads what `qtide usage --export xdmod` writes; it needs PHP.

Its source is fetched, unless `XDMOD_SOURCE` names a folder that has it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import dimod

from qtide.backends.client.client import Client

SHREDDER = Path(__file__).with_name("xdmod_shredder.php")
HOME = "https://github.com/ubccr/xdmod"


def source() -> str:
    """The folder with XDMoD's source."""
    if named := os.environ.get("XDMOD_SOURCE"):
        return named
    folder = Path("xdmod/source")
    if not folder.exists():
        subprocess.run(["git", "clone", "--quiet", "--depth=1", HOME, folder], check=True)
    return str(folder)


def main() -> None:
    """Use the device, and compare what XDMoD would store with the books."""
    qpu = Client(os.environ["QTIDE_URL"], os.environ["QTIDE_TOKEN"])
    model = dimod.BinaryQuadraticModel({"a": 1.0}, {"ab": -1.0}, "BINARY")
    for name in ("first", "with | and\na line", "ümlaut"):
        qpu.submit(model, "annealer", name=name).result()
    words = ("usage", "--everybody", "--since", "1d", "--export", "xdmod")
    environ = os.environ | {"QTIDE_TOKEN": os.environ["QTIDE_OPERATOR_TOKEN"]}
    qtide = Path(sys.executable).with_name("qtide")
    lines = subprocess.run([qtide, *words], env=environ, check=True, capture_output=True).stdout
    Path("xdmod/star.log").write_bytes(lines)
    php = ["php", str(SHREDDER), source(), "xdmod/star.log"]
    found = json.loads(subprocess.run(php, check=True, capture_output=True).stdout)
    assert found["wrong"] == [] and found["read"] == len(found["rows"]) == 3, found
    (mine,) = qpu.call("GET", "/v1/usage", {"by": ["account"]})
    stored = sum(row["end_time"] - row["start_time"] for row in found["rows"])
    assert abs(stored - mine["qpu_seconds"]) <= 0.5, (stored, mine)
    for row in found["rows"]:
        assert (row["user_name"], row["account_name"]) == ("ada", "physics"), row
        assert (row["partition_name"], row["state"]) == ("annealer", "COMPLETED"), row
        assert row["elapsed"] == row["end_time"] - row["start_time"], row
    assert [row["job_name"] for row in found["rows"]][1] == "with / and a line", found


if __name__ == "__main__":
    main()
