"""The service by its native API, for real: one process for the service, one for each device."""

from __future__ import annotations

import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import dimod
import pytest
import urllib3

import qtide
from qtide.backends.client.client import Client, QuotaUsedUp, ServiceFailed, TaskFailed
from qtide.backends.payloads.payload import Burst
from qtide.service.local_service import LocalService
from tests.service.serving import BURSTS, Serve, wait_until

MODEL = dimod.BinaryQuadraticModel({"a": -1.0, "b": -1.0}, {("a", "b"): 2.0}, 0.0, "BINARY")


def test_a_payload_comes_back_with_its_answer(service: LocalService) -> None:
    client = service.client("ada")
    assert client.run(Burst(0.01, {"x": [1, 2]}), "dev") == {"x": [1, 2]}
    assert client.run(MODEL, "annealer", shots=10).first.energy == -1.0


def test_the_same_seed_gives_the_same_answer(service: LocalService) -> None:
    client = service.client("ada")
    first, second = (client.run(MODEL, "annealer", shots=20, seed=7) for _ in range(2))
    assert first == second


def test_an_answer_can_be_fetched_from_another_process(service: LocalService) -> None:
    client = service.client("bob")
    task = client.submit(Burst(0.05, "from afar"), "dev")
    code = (
        "import sys; from qtide.backends.client.client import Client;"
        "print(Client(sys.argv[1], sys.stdin.read()).task(sys.argv[2]).result(20))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, service.url, task.id],
        input=client.access.token,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "from afar"


def test_a_waiting_task_says_where_it_stands_and_why(service: LocalService) -> None:
    client = service.client("cyd")
    first = client.submit(Burst(5.0), "dev")
    second = client.submit(Burst(1.0), "dev")
    wait_until(lambda: first.refresh().response["started"] is not None)
    said = second.refresh().response
    assert (said["state"], said["reason"], said["position"]) == ("queued", "queue", 1)
    assert said["expected_end"] == pytest.approx(said["expected_start"] + 1.0)
    assert said["expected_start"] >= first.response["started"] + 4.9
    assert second.cancel().state == "cancelled"
    first.cancel()
    with pytest.raises(TaskFailed, match="cancelled"):
        first.result(10)
    assert 0 < first.response["qpu_seconds"] < 5.0


def test_the_same_key_is_the_same_task(service: LocalService) -> None:
    client = service.client("dan")
    key = str(uuid.uuid4())
    with ThreadPoolExecutor(8) as threads:
        tasks = list(threads.map(lambda _: client.submit(Burst(0.01, 1), "dev", key=key), range(8)))
    assert len({task.id for task in tasks}) == 1
    with pytest.raises(ServiceFailed, match="was used before, for another task") as refused:
        client.submit(Burst(0.01, 2), "dev", key=key)
    assert refused.value.status == 409
    other = service.client("somebody else").submit(Burst(0.01, 2), "dev", key=key)
    assert other.id != tasks[0].id


def test_no_user_sees_fetches_or_cancels_another_users_task(service: LocalService) -> None:
    task = service.client("fay").submit(Burst(0.2, "secret"), "dev")
    stranger = service.client("mallory")
    for method, path in (
        ("GET", f"/v1/tasks/{task.id}"),
        ("GET", f"/v1/tasks/{task.id}/payload"),
        ("POST", f"/v1/tasks/{task.id}/cancel"),
    ):
        with pytest.raises(ServiceFailed, match="you have no task") as refused:
            stranger.call(method, path)
        assert refused.value.status == 404
    assert [each.id for each in stranger.tasks()] == []
    assert task.result(10) == "secret"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/tasks?everybody=true"),
        ("GET", "/v1/usage?everybody=true"),
        ("POST", "/v1/devices/drained/drain"),
        ("POST", "/v1/devices/drained/resume"),
    ],
)
def test_what_only_operators_may_do_is_refused_to_others_in_the_same_way(
    service: LocalService, method: str, path: str
) -> None:
    client = service.client("nia")
    with pytest.raises(ServiceFailed, match="nia is not an operator of this service") as refused:
        client.call(method, path, form={} if method == "POST" else None)
    assert refused.value.status == 403
    service.operator().call(method, path, form={} if method == "POST" else None)


def test_a_task_can_be_named_by_a_prefix_of_its_id(service: LocalService) -> None:
    client, stranger = service.client("uma"), service.client("vic")
    task = client.submit(Burst(0.0, "found"), "dev", wait=10)
    assert client.task(task.id[:4]).result(10) == "found"
    assert client.call("POST", f"/v1/tasks/{task.id[:13]}/cancel")["id"] == task.id
    for caller, name in ((stranger, task.id[:8]), (client, "ffff-0000")):
        with pytest.raises(ServiceFailed, match="you have no task") as refused:
            caller.task(name)
        assert refused.value.status == 404


def test_operators_see_what_there_is_but_no_payload_and_no_answer(service: LocalService) -> None:
    task = service.client("gus", "physics").submit(Burst(0.01, "private"), "dev")
    task.result(10)
    operator = service.operator()
    said = operator.task(task.id).response
    assert (said["user"], said["account"], said["state"]) == ("gus", "physics", "done")
    assert "answer" not in said
    with pytest.raises(ServiceFailed, match="operators see no payloads"):
        operator.call("GET", f"/v1/tasks/{task.id}/payload")
    assert task.id in [each.id for each in operator.tasks(everybody=True)]


def test_tokens_that_are_wrong_expired_or_revoked_are_refused(service: LocalService) -> None:
    good = service.token("hal")
    for bad in ("", "qtide_nonsense", good[:-1], service.token("hal", days=-1.0)):
        with pytest.raises(ServiceFailed) as refused:
            Client(service.url, bad or "x", patience=0.0).devices()
        assert refused.value.status == 401
    with pytest.raises(ServiceFailed, match="a token is needed"):
        anonymous = Client(service.url, "x", patience=0.0)
        anonymous.access = type(anonymous.access)(service.url, None)
        anonymous.devices()
    assert Client(service.url, good).devices()


def test_tasks_are_listed_page_by_page_newest_first(service: LocalService) -> None:
    client = service.client("ida")
    with ThreadPoolExecutor(8) as threads:
        made = set(threads.map(lambda n: client.submit(Burst(0.0, n), "dev").id, range(120)))
    listed = [each.id for each in client.tasks()]
    assert len(listed) == 120
    assert set(listed) == made
    moments = [each.response["number"] for each in client.tasks()]
    assert moments == sorted(moments, reverse=True)


def test_one_user_with_many_tasks_does_not_hold_up_another(service: LocalService) -> None:
    greedy, modest = service.client("jon"), service.client("kim")
    service.operator().call("POST", "/v1/devices/dev/drain", {}, {})
    try:
        with ThreadPoolExecutor(16) as threads:
            tasks = list(threads.map(lambda _: greedy.submit(Burst(0.02), "dev"), range(200)))
        task = modest.submit(Burst(0.02), "dev")
        assert task.refresh().response["position"] <= 2, "at most two of the greedy user's go first"
    finally:
        service.operator().call("POST", "/v1/devices/dev/resume")
    task.result(60.0)
    for each in tasks:
        each.cancel()


def test_a_quota_of_tasks_is_kept(service: LocalService) -> None:
    client = service.client("eve")
    tasks = [client.submit(Burst(30.0), "dev") for _ in range(3)]
    with pytest.raises(ServiceFailed, match="as many as allowed") as refused:
        client.submit(Burst(0.0), "dev")
    assert refused.value.status == 429
    tasks[-1].cancel()
    client.submit(Burst(0.0), "dev").cancel()
    for task in tasks:
        task.cancel()


def test_a_longest_wait_is_promised_or_refused_at_once(service: LocalService) -> None:
    client, other = service.client("leo"), service.client("mia")
    other.submit(Burst(0.3), "dev")
    promised = client.submit(Burst(0.0), "dev", max_wait=20.0)
    assert promised.response["expected_start"] <= promised.response["submitted"] + 20.0
    blocking = client.submit(Burst(30.0), "dev")
    wait_until(lambda: blocking.refresh().response["started"])
    with pytest.raises(ServiceFailed, match="may wait 1 s, but could start in about") as refused:
        client.submit(Burst(0.0), "dev", max_wait=1.0)
    assert refused.value.status == 409
    assert refused.value.response["reason"] == "queue"
    assert refused.value.response["expected_start"] >= blocking.response["started"] + 30.0
    blocking.cancel()


def test_a_drained_device_queues_new_tasks_until_it_is_resumed(service: LocalService) -> None:
    operator, client = service.operator(), service.client("ned")
    operator.call("POST", "/v1/devices/drained/drain", form={"reason": "cooling"})
    task = client.submit(Burst(0.0, "later"), "drained")
    assert task.refresh().response["reason"] == "maintenance"
    device = client.device("drained")
    assert (device["state"], device["reason"]) == ("maintenance", "cooling")
    with pytest.raises(ServiceFailed, match="at an unknown time"):
        client.submit(Burst(0.0), "drained", max_wait=5.0)
    with pytest.raises(ServiceFailed, match="not an operator"):
        client.call("POST", "/v1/devices/drained/resume")
    operator.call("POST", "/v1/devices/drained/resume")
    assert task.result(10) == "later"


def test_usage_counts_what_was_used_by_user_account_job_and_device(service: LocalService) -> None:
    token = service.token("oda", "physics", job=4711)
    client = Client(service.url, token)
    for _ in range(3):
        client.run(Burst(0.1), "dev")
    rows = client.call("GET", "/v1/usage", {"by": ["account", "job", "device"]})
    assert [(row["account"], row["job"], row["device"], row["tasks"]) for row in rows] == [
        ("physics", 4711, "dev", 3)
    ]
    assert rows[0]["qpu_seconds"] == pytest.approx(0.3, abs=0.2)
    running = client.submit(Burst(20.0), "dev")
    # the beginning of a task is on disk a moment after it
    wait_until(lambda: client.call("GET", "/v1/usage", {"by": ["user"]})[0]["running"] == 1)
    rows = client.call("GET", "/v1/usage", {"by": ["user"]})
    assert rows[0]["tasks"] == 4
    assert rows[0]["qpu_seconds"] > 0.3
    running.cancel()


def test_metrics_are_by_device_and_account_never_by_user_or_job(
    service: LocalService,
) -> None:
    service.client("pat", "maths").run(Burst(0.01), "dev")

    head = {"Authorization": f"Bearer {service.token('boss', operator=True)}"}
    text = urllib3.request("GET", f"{service.url}/metrics", headers=head).data.decode()
    assert 'qtide_tasks_total{account="maths",device="dev",status="done"}' in text
    public = urllib3.request("GET", f"{service.url}/metrics").data.decode()
    assert 'qtide_tasks_total{device="dev",status="done"}' in public
    assert "maths" not in public
    assert 'qtide_device_state{device="star",state="idle"} 1.0' in text
    assert "qtide_queue_wait_seconds_bucket" in text
    assert "qtide_execution_seconds_bucket" in text
    assert "pat" not in text.replace("path", "")


def test_inside_a_job_the_qpu_is_found_by_the_environment(
    service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QTIDE_URL", service.url)
    monkeypatch.setenv("QTIDE_TOKEN", service.token("quin"))
    monkeypatch.setenv("QTIDE_DEVICE", "dev")
    assert qtide.qpu().run(Burst(0.0, "here")) == "here"
    assert qtide.qpu("annealer").run(MODEL, shots=10).first.energy == -1.0


def test_logs_and_representations_hold_no_token(service: LocalService) -> None:
    client = service.client("rob")
    client.run(Burst(0.0, "not for the log"), "dev")
    assert (client.access.token or "") not in repr(client.access)
    text = (service.folder / "serve.log").read_text()
    assert "qtide_" not in text
    assert "not for the log" not in text
    assert any(line.get("user") == "rob" for line in service.log())


def test_a_task_waits_for_a_calibration_and_says_so(serving: Serve) -> None:
    calibration = "calibration = { every = 1000000, lasts = 999999 }\n"
    service = serving(BURSTS + calibration)
    client = service.client()
    wait_until(lambda: client.device("dev")["state"] == "calibration")
    task = client.submit(Burst(0.0), "dev")
    said = task.refresh().response
    assert (said["state"], said["reason"]) == ("queued", "calibration")
    assert said["expected_start"] > said["submitted"] + 900_000


def test_a_daily_quota_makes_tasks_wait_and_says_so(serving: Serve) -> None:
    service = serving(BURSTS + "[quotas.user]\nqpu_seconds = 1.0\n")
    client = service.client()
    client.run(Burst(0.9), "dev")
    with pytest.warns(UserWarning, match="the quota is used up"):
        task = client.submit(Burst(0.5), "dev")
    said = task.refresh().response
    assert (said["state"], said["reason"]) == ("queued", "quota")
    told = urllib3.request("GET", f"{service.url}/metrics").data.decode()
    assert 'qtide_tasks_waiting{device="dev",why="quota"} 1.0' in told
    assert 'qtide_tasks_waiting{device="dev",why="queue"} 0.0' in told
    with pytest.raises(ServiceFailed, match="quota") as refused:
        client.submit(Burst(0.5), "dev", max_wait=10.0)
    assert refused.value.response["reason"] == "quota"
    assert client.submit(Burst(0.05), "dev").result(10) is None
    assert task.cancel().state == "cancelled"


def test_whoever_waits_for_a_quota_hears_it_at_once_and_does_not_wait_for_hours(
    serving: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = serving(BURSTS + "[quotas.user]\nqpu_seconds = 0.1\n")
    client = service.client()
    client.run(Burst(0.1), "dev")
    with pytest.warns(UserWarning, match="the quota is used up"):
        task = client.submit(Burst(0.05), "dev", wait=60.0)
    monkeypatch.setattr("qtide.backends.client.client.QUOTA_PATIENCE", 0.5)
    with pytest.raises(QuotaUsedUp, match=r"to wait for it, give result\(\) a timeout"):
        task.result()
    assert task.refresh().state == "queued", "it stays, for whoever wants it tomorrow"
    with pytest.raises(TimeoutError), pytest.warns(UserWarning):
        client.task(task.id).result(1.0)
    with pytest.raises(QuotaUsedUp), pytest.warns(UserWarning):
        client.run(Burst(0.05), "dev")
    assert [each.state for each in client.tasks()] == ["cancelled", "queued", "done"]


def test_answers_are_purged_in_time_and_accounts_stay(serving: Serve) -> None:
    service = serving(BURSTS, "retention_days = 0.00000001")
    client = service.client()
    task = client.submit(Burst(0.01, "gone soon"), "dev", wait=10)
    service.kill()
    service.start()
    wait_until(lambda: any(line["event"] == "purged" for line in service.log()))
    with pytest.raises(ServiceFailed, match="have been deleted"):
        client.task(task.id)
    assert client.call("GET", "/v1/usage")[0]["qpu_seconds"] > 0


def test_the_timing_of_a_device_without_a_profile_is_learnt(
    service: LocalService,
) -> None:
    client = service.client("sue")
    first = client.submit(MODEL, "annealer", shots=10)
    assert first.response["expected_seconds"] > 0
    first.result(20)
    later = client.submit(MODEL, "annealer", shots=10)
    later.result(20)
    assert later.response["expected_seconds"] > 0
    assert later.response["expected_seconds"] != first.response["expected_seconds"]
