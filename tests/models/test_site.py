from __future__ import annotations

from pathlib import Path

import pytest

from qtide.errors import UsageError
from qtide.models.site import QpuModel, Window, read_site

FULL = """
nodes = 64
scheduler = "easy"
limit = 7200

[delays]
grant = 3.5
cold = 2

[[losses]]
at = 100
node = "n1"
back = 50

[qpu]
number = 2
offload = 3.6
spread = "lognormal"
windows = [{ at = 1000, lasts = 100, every = 86400 }]

[power]
node_busy = 600

[background.generate]
jobs = 100
"""


def test_a_file_describes_a_whole_site(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(FULL)
    site = read_site(file)
    assert (site.nodes, site.delays.grant, site.losses[0].back) == (64, 3.5, 50)
    assert site.is_batch and site.qpu.windows[0].every == 86_400


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nods = 3", "nods"),
        ("nodes = 0", "nodes: input should be greater than or equal to 1"),
        ("[delays]\ngrant = -1", "delays.grant"),
        ("nodes =", "not valid TOML"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_a_sentence(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "site.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_site(file)


def test_a_window_delays_what_would_start_within() -> None:
    qpu = QpuModel(windows=(Window(10, 5, 100), Window(15, 2)))
    assert [qpu.back(now) for now in (9.0, 10.0, 16.0, 17.0, 112.0)] == [9, 17, 17, 17, 115]
