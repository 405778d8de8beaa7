import unittest

import dimod
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qtide.backends.client.client import Client
from qtide.backends.client.dimod_sampler import DimodSampler

LABELS = st.one_of(st.integers(-9, 9), st.text(max_size=3), st.tuples(st.integers(0, 3), st.text()))
BIASES = st.integers(-20, 20).map(lambda tenths: tenths / 10)


@st.composite
def models(draw: st.DrawFn) -> dimod.BinaryQuadraticModel:
    """Small enough to try every sample."""
    variables = draw(st.lists(LABELS, min_size=1, max_size=6, unique=True))
    linear = {variable: draw(BIASES) for variable in variables}
    pairs = [(u, v) for i, u in enumerate(variables) for v in variables[:i]]
    quadratic = {pair: draw(BIASES) for pair in pairs if draw(st.booleans())}
    return dimod.BinaryQuadraticModel(
        linear, quadratic, draw(BIASES), draw(st.sampled_from(["SPIN", "BINARY"]))
    )


@settings(max_examples=40)
@given(model=models())
def test_energies_are_right_and_the_best_is_found(
    client: Client, model: dimod.BinaryQuadraticModel
) -> None:
    samples = DimodSampler(client, "annealer").sample(model, num_reads=20, seed=1)
    assert samples.vartype is model.vartype
    assert set(samples.variables) == set(model.variables)
    assert samples.record.energy == pytest.approx(model.energies(samples))
    best = dimod.ExactSolver().sample(model).first.energy
    assert samples.first.energy == pytest.approx(best)


def test_it_is_a_sampler_as_dimod_means_it(client: Client) -> None:
    sampler = DimodSampler(client, "annealer")
    dimod.testing.assert_sampler_api(sampler)
    assert sampler.properties["num_reads_range"] == [1, 1_000_000]
    assert sampler.sample_ising({"a": 1.0}, {}).first.sample == {"a": -1}
    assert sampler.sample_qubo({("a", "a"): -1.0}).first.sample == {"a": 1}


def test_the_answer_says_how_long_it_took(client: Client) -> None:
    model = dimod.BinaryQuadraticModel({"a": 1.0}, {}, 0.0, "SPIN")
    samples = DimodSampler(client, "annealer").sample(model, num_reads=100, label="by its label")
    task = client.task(samples.info["task_id"])
    waited = task.response["started"] - task.response["submitted"]
    assert samples.info["timing"] == {
        "qpu_access_time": round(1e6 * task.response["qpu_seconds"]),
        "queue_time": round(1e6 * waited),
    }
    assert task.response["name"] == "by its label"
    assert task.result().first.energy == samples.first.energy


def test_parameters_that_do_not_exist_are_warned_of(client: Client) -> None:
    model = dimod.BinaryQuadraticModel({"a": 1.0}, {}, 0.0, "SPIN")
    with pytest.warns(dimod.exceptions.SamplerUnknownArgWarning, match="annealing_time"):
        DimodSampler(client, "annealer").sample(model, annealing_time=20)


def test_dimods_own_tests_of_samplers_pass(client: Client) -> None:
    @dimod.testing.load_sampler_bqm_tests(lambda: DimodSampler(client, "annealer"))
    class Conforms(unittest.TestCase):
        pass

    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Conforms)
    result = unittest.TestResult()
    suite.run(result)
    assert result.testsRun > 20
    assert [trace for _, trace in (*result.failures, *result.errors)] == []


def test_the_same_key_gives_the_same_task(client: Client) -> None:
    model = dimod.BinaryQuadraticModel({"a": 1.0}, {}, 0.0, "SPIN")
    sampler = DimodSampler(client, "annealer")
    first, again = (sampler.sample(model, key="model-8").info["task_id"] for _ in range(2))
    assert first == again
