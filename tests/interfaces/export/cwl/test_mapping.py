"""The mapping of steps to places, and the engine's own environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qtide.core.errors import UsageError
from qtide.interfaces.export import streamflow
from qtide.interfaces.export.streamflow_mapping import StreamFlowMapping, yaml
from qtide.runs.driver import play
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.runs.start import create


def mapped(folder: Path, **terms: Any) -> StreamFlowMapping:
    spec = Spec("synthetic", strategy="workflow", **terms)
    return StreamFlowMapping(RunFolder.create(folder, "run", spec), folder)


def places(mapping: StreamFlowMapping) -> dict[str, str]:
    bindings = mapping.content()["workflows"]["qtide"]["bindings"]
    return {each["step"]: each["target"]["deployment"] for each in bindings}


def test_all_steps_run_here_on_a_local_cluster(tmp_path: Path) -> None:
    mapping = mapped(tmp_path)
    assert set(places(mapping).values()) == {"host"}
    assert mapping.scripts() == {}


def test_steps_go_to_the_partitions_that_the_options_name(tmp_path: Path) -> None:
    options = {"qpu_by": "licence", "qpu_partition": "cold", "account": "physics"}
    mapping = mapped(tmp_path, cluster="slurm:long", options=options, nodes=4, vqpus=2)
    assert places(mapping) == {
        "/": "host",
        "/phases/classical": "compute",
        "/phases/quantum": "quantum",
    }
    scripts = mapping.scripts()
    assert "#SBATCH --partition=long\n" in scripts["compute.sh"]
    assert "#SBATCH --account=physics\n" in scripts["compute.sh"]
    assert "#SBATCH --licenses=qpu:1\n" in scripts["quantum.sh"]
    assert "#SBATCH --partition=cold\n" in scripts["quantum.sh"]
    deployments = mapping.content()["deployments"]
    assert deployments["compute"]["config"]["maxConcurrentJobs"] == 4
    assert deployments["quantum"]["config"]["maxConcurrentJobs"] == 2


def test_a_device_of_a_service_is_a_quantum_location(tmp_path: Path) -> None:
    mapping = mapped(tmp_path, qpu="http://127.0.0.1:8037/star")
    assert places(mapping)["/phases/quantum"] == "service"
    assert mapping.content()["deployments"]["service"]["config"] == {
        "url": "http://127.0.0.1:8037/star",
        "slots": 1,
    }


def test_yaml_nests_names_and_lists() -> None:
    text = yaml({"a": {"b": [1, {"c": "d", "e": []}]}, "f": None})
    assert text == 'a:\n  b:\n    - 1\n    - c: "d"\n      e: []\nf: null\n'


def test_an_engine_that_is_not_installed_is_told_how_to_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(streamflow.NAMED, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    spec = Spec("synthetic", strategy="workflow", options={"engine": "streamflow"})
    with pytest.raises(UsageError, match="qtide engine install streamflow"):
        create(spec, tmp_path)
    monkeypatch.setenv(streamflow.NAMED, str(tmp_path / "none"))
    with pytest.raises(UsageError, match="is no command"):
        streamflow.command()


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    spec = Spec("synthetic", strategy="workflow", options={"engine": "make"})
    with pytest.raises(UsageError, match="no workflow engine 'make'; there are: streamflow"):
        create(spec, tmp_path)


def test_streamflow_refuses_a_folder_that_it_would_not_quote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(streamflow.NAMED, "true")
    spec = Spec("synthetic", strategy="workflow", options={"engine": "streamflow"})
    run = create(spec, tmp_path / "my runs")
    assert "because of a space" in str(play(run, lambda *_: None).error)
