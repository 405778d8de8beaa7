"""The API by plain HTTP; test_stock_clients.py shows that real clients understand it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from qtide.backends.payloads.payload import Burst
from qtide.service.local_service import LocalService
from tests.service.apis.calling import Caller

NOBODYS = "00000000-0000-4000-8000-000000000000"
LONG = 50_000
"""Shots that occupy the device for ten seconds."""


def batch(shots: int = 4, **words: Any) -> dict[str, Any]:
    """Of three qubits, those measured by the first key are 1 and 0, the other is 1."""
    flip = {"angle": 3.141592653589793, "phase": 0.0}
    instructions = [
        {"name": "prx", "locus": ["QB1"], "args": flip},
        {"name": "prx", "locus": ["QB3"], "args": flip},
        {"name": "measure", "locus": ["QB1", "QB2"], "args": {"key": "a"}},
        {"name": "measure", "locus": ["QB3"], "args": {"key": 'odd "key" é'}},
    ]
    return {"circuits": [{"name": "flips", "instructions": instructions}], "shots": shots} | words


def handed_in(call: Caller, computer: str = "star", **words: Any) -> str:
    said: dict[str, str] = call("POST", f"jobs/{computer}/circuit", batch(**words), 201)
    return said["id"]


def ended(call: Caller, job: str) -> dict[str, Any]:
    """The job once it is over."""
    end = time.monotonic() + 60.0
    while time.monotonic() < end:
        said: dict[str, Any] = call("GET", f"jobs/{job}", wait_until_terminal="true")
        if said["status"] not in ("waiting", "processing"):
            return said
    raise TimeoutError(f"the job {job} did not end")


@contextmanager
def busy(call: Caller) -> Iterator[str]:
    """While a long job is on the crowded device."""
    job = handed_in(call, "crowded", shots=LONG)
    try:
        yield job
    finally:
        call("POST", f"jobs/{job}/cancel")


def test_only_devices_that_this_api_shows_are_quantum_computers(ada: Caller) -> None:
    said = ada("GET", "quantum-computers")["quantum_computers"]
    assert [each["alias"] for each in said] == ["star", "crowded", "quick"]
    assert len({each["id"] for each in said}) == 3


def test_a_computer_is_found_by_its_id_and_by_its_alias(ada: Caller) -> None:
    [star, *_] = ada("GET", "quantum-computers")["quantum_computers"]
    by_id = ada("GET", f"quantum-computers/{star['id']}")
    assert by_id["alias"] == "star"
    assert by_id["status"]["health"]["healthy"] is True
    assert ada("GET", "quantum-computers/star/health")["healthy"] is True
    said = ada("GET", "quantum-computers/moon", status=404)
    assert said["message"] == "there is no quantum computer 'moon'; there are: star, crowded, quick"


def test_the_architecture_says_which_gate_acts_where(ada: Caller) -> None:
    said = ada("GET", "calibration-sets/star/default/dynamic-quantum-architecture")
    assert said["qubits"] == ["QB1", "QB2", "QB3", "QB4", "QB5"]
    assert said["gates"]["cz"]["implementations"]["default"]["loci"][0] == ["QB1", "QB3"]
    assert said["gates"]["prx"]["implementations"]["default"]["loci"][4] == ["QB5"]
    assert "barrier" not in said["gates"]
    [static] = ada("GET", "quantum-computers/star/artifacts/static-quantum-architectures")
    assert static["connectivity"] == [
        ["QB1", "QB3"],
        ["QB2", "QB3"],
        ["QB3", "QB4"],
        ["QB3", "QB5"],
    ]


def test_a_calibration_set_has_the_id_that_the_architecture_names(ada: Caller) -> None:
    architecture = ada("GET", "calibration-sets/star/default/dynamic-quantum-architecture")
    name = architecture["calibration_set_id"]
    assert ada("GET", f"calibration-sets/star/{name}")["observation_set_id"] == name
    assert ada("GET", f"calibration-sets/star/{name}/metrics")["describes_id"] == name
    metrics = ada("GET", f"calibration-sets/star/{name}/metrics")["observations"]
    found = {one["dut_field"]: one["value"] for one in metrics}
    assert found["metrics.rb.prx.default.QB1.fidelity"] == 1.0  # the star has no noise
    assert found["metrics.irb.cz.default.QB1__QB3.fidelity"] == 1.0
    assert ada("GET", f"calibration-sets/crowded/{name}", status=404)["error_code"] == "not_found"


def test_the_service_states_its_version(ada: Caller) -> None:
    assert ada("GET", "about")["software_versions"].keys() == {"qtide"}
    assert ada("GET", "quantum-computers/star/artifacts/about")["version"]


def test_a_batch_is_measured_by_its_keys(ada: Caller) -> None:
    job = handed_in(ada)
    assert ended(ada, job)["status"] == "completed"
    rows = {"a": [[1, 0]] * 4, 'odd "key" é': [[1]] * 4}
    assert ada("GET", f"jobs/{job}/artifacts/measurements") == [rows]
    counts = {"measurement_keys": list(rows), "counts": {"101": 4}}
    assert ada("GET", f"jobs/{job}/artifacts/measurement_counts") == [counts]


def test_the_request_comes_back_as_it_was_sent(ada: Caller) -> None:
    sent = batch(heralding_mode="none", dd_mode="disabled", unheard_of={"kept": True})
    job = ada("POST", "jobs/star/circuit?use_timeslot=false", sent, 201)["id"]
    assert ada("GET", f"jobs/{job}/payload") == sent


def test_a_job_has_a_timeline(ada: Caller) -> None:
    said = ended(ada, handed_in(ada))
    steps = [entry["status"] for entry in said["timeline"]]
    accepted = ["created", "received", "compilation_started", "compilation_ended"]
    ran = ["execution_started", "execution_ended", "ready", "completed"]
    assert steps == [*accepted, *ran]
    assert [entry["timestamp"] for entry in said["timeline"]] == sorted(
        entry["timestamp"] for entry in said["timeline"]
    )
    assert said["compilation"]["calibration_set_id"]
    assert said["queue_position"] is None
    assert said["messages"] == said["errors"] == []


def test_a_job_that_waits_says_why_and_until_when(ada: Caller, bob: Caller) -> None:
    with busy(bob):
        job = handed_in(ada, "crowded")
        said = ada("GET", f"jobs/{job}")
        assert (said["status"], said["queue_position"]) == ("waiting", 1)
        [message] = said["messages"]
        assert message["message"].startswith("the job waits, as others are ahead of it; it should")
        assert ada("POST", f"jobs/{job}/cancel")["status"] == "cancelled"
    assert ada("GET", f"jobs/{job}")["timeline"][-1]["status"] == "cancelled"


def test_a_job_says_that_its_device_is_in_maintenance(service: LocalService, ada: Caller) -> None:
    operator = service.operator()
    operator.call("POST", "/v1/devices/crowded/drain", form={"reason": "new cables"})
    try:
        job = handed_in(ada, "crowded")
        [message] = ada("GET", f"jobs/{job}")["messages"]
        assert message["message"] == "the job waits, as the device is in maintenance"
        assert ada("GET", "quantum-computers/crowded/health")["healthy"] is False
    finally:
        operator.call("POST", "/v1/devices/crowded/resume")
    assert ended(ada, job)["status"] == "completed"


def test_the_response_about_a_short_job_is_delayed_until_its_end(ada: Caller) -> None:
    job = handed_in(ada)
    assert ada("GET", f"jobs/{job}")["status"] == "completed"


def test_a_job_on_the_device_is_cancelled(ada: Caller) -> None:
    with busy(ada) as job:
        assert ada("GET", f"jobs/{job}")["status"] in ("waiting", "processing")
    assert ended(ada, job)["status"] == "cancelled"
    said = ada("GET", f"jobs/{job}/artifacts/measurements", status=409)
    assert said["message"] == f"the job '{job}' has no measurements: it is cancelled"


def test_a_job_that_is_deleted_does_not_run(ada: Caller) -> None:
    with busy(ada):
        job = handed_in(ada, "crowded")
        ada("DELETE", f"jobs/{job}", status=204)
        assert ended(ada, job)["status"] == "cancelled"


def test_a_wait_ends_when_its_time_is_over(ada: Caller, bob: Caller) -> None:
    with busy(bob) as job:
        said = bob("GET", f"jobs/{job}", wait_until_terminal="true", timeout_seconds=0.01)
        assert said["status"] in ("waiting", "processing")


def test_no_user_sees_the_jobs_of_others(ada: Caller, bob: Caller) -> None:
    job = handed_in(ada)
    for path in ("", "/payload", "/artifacts/measurements", "/artifacts/measurement_counts"):
        assert bob("GET", f"jobs/{job}{path}", status=404)["error_code"] == "not_found"
    bob("POST", f"jobs/{job}/cancel", status=404)
    bob("DELETE", f"jobs/{job}", status=404)
    assert ended(ada, job)["status"] == "completed"


def test_a_job_can_be_named_by_a_prefix_of_its_id(ada: Caller, bob: Caller) -> None:
    job = handed_in(ada)
    assert ended(ada, job)["status"] == "completed"
    assert ada("GET", f"jobs/{job[:8]}")["id"] == job
    assert ada("GET", f"jobs/{job[:8]}/artifacts/measurement_counts")
    assert bob("GET", f"jobs/{job[:8]}", status=404)["error_code"] == "not_found"


def test_tasks_of_other_apis_are_not_circuit_jobs(service: LocalService) -> None:
    client = service.client("ada")
    task = client.submit(Burst(0.0), "star")
    call = Caller(service.url, client.access.token)
    assert "is not a job of IQM's circuits" in call("GET", f"jobs/{task.id}", status=404)["message"]


def test_a_token_is_needed(service: LocalService) -> None:
    for token in (None, "wrong"):
        said = Caller(service.url, token)("GET", "quantum-computers", status=401)
        assert said["error_code"] == "not_allowed"
        assert said["source"] == "qtide"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"shots": 0}, "the request is wrong at shots"),
        ({"circuits": []}, "the request is wrong at circuits"),
        ({"heralding_mode": "zeros"}, "the request is wrong at heralding_mode"),
        ({"calibration_set_id": "x"}, "the request is wrong at calibration_set_id"),
        ({"circuits": [{"name": "empty", "instructions": []}]}, "circuit 0: nothing is measured"),
        (
            {"circuits": [{"instructions": [{"name": "h", "locus": ["QB1"]}]}]},
            "circuit 0, instruction 0: there is no operation 'h'",
        ),
    ],
)
def test_a_wrong_request_is_refused_with_a_sentence(
    ada: Caller, words: dict[str, Any], said: str
) -> None:
    refused = ada("POST", "jobs/star/circuit", batch(**words), 422)
    assert refused["message"].startswith(said)


def test_what_is_not_offered_is_refused(ada: Caller) -> None:
    slots = ada("POST", "jobs/star/circuit?use_timeslot=true", batch(), 400)
    assert slots["message"].startswith("there are no time slots here")
    elsewhere = ada("POST", "jobs/star/circuit", batch(calibration_set_id=NOBODYS), 404)
    assert elsewhere["message"].startswith("star has no calibration set")
    assert ada("POST", "jobs/moon/circuit", batch(), 404)["error_code"] == "not_found"
    assert ada("POST", "jobs/star/run", batch(), 404)["source"] == "qtide"
    assert ada("GET", f"jobs/{NOBODYS}", status=404)["message"] == f"you have no task '{NOBODYS}'"
