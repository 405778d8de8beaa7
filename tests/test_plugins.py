"""What is registered is found by name; what is not gets a sentence that lists what is."""

import pytest

from qtide.backends.clusters.kind import CLUSTERS
from qtide.backends.clusters.slurm.slurm_kind import SlurmOptions
from qtide.core.errors import UsageError
from qtide.core.options import chosen, declared
from qtide.core.plugins import Plugins
from qtide.strategies.strategy import strategy_names


def test_qtides_own_parts_are_found_like_anybody_elses() -> None:
    assert {"local", "simulated", "slurm"} <= set(CLUSTERS.names())
    assert strategy_names()[0] == "static"
    assert CLUSTERS.load("slurm").Options is SlurmOptions


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="there is no cluster 'cloud'; there are: local, sim"):
        CLUSTERS.load("cloud")
    nothing: Plugins[object] = Plugins("qtide.nothing", "thing")
    with pytest.raises(UsageError, match="there is no thing 'any'; there are: none"):
        nothing.load("any")


def test_options_are_declared_once_with_their_help() -> None:
    found = {each.name: each for each in declared(SlurmOptions)}
    assert found["time_limit"].default == "60"
    assert "sbatch" in found["time_limit"].option.help


def test_each_takes_its_own_of_all_options() -> None:
    taken = chosen(SlurmOptions, {"account": "physics", "favour": 0.5})
    assert taken == SlurmOptions(account="physics")
