"""CITATION.cff names this version, and no persons that do not exist."""

from pathlib import Path

import yaml

from qtide.core.version import __version__

FILE = Path(__file__).parents[1] / "CITATION.cff"


def test_it_is_about_this_version() -> None:
    said = yaml.safe_load(FILE.read_text())
    assert said["version"] == __version__
    assert said["authors"] == [{"name": "The qtide developers"}]
    assert {"cff-version", "message", "title", "license"} <= set(said)
