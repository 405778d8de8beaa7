"""The commands of the vQPU service, as its users and its operator type them."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import urllib3

from qtide.backends.client.client import Client, RemoteTask, ServiceFailed
from qtide.backends.payloads.payload import Burst
from qtide.core.errors import QtideError
from qtide.interfaces.cli.service import _turn, clock
from qtide.service.local_service import LocalService
from tests.interfaces.cli.inside import called, printed, refused
from tests.service.serving import wait_until

DEVICES = '[devices.dev]\nkind = "burst"\n[quotas.accounts.maths]\nqpu_seconds = 60\n'


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    with LocalService(tmp_path_factory.mktemp("service"), DEVICES) as served:
        yield served


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def qtide(*words: str, **env: str) -> Done:
    bare = dict.fromkeys(name for name in os.environ if name.startswith("QTIDE_"))
    done = called(*words, env=bare | env)
    if isinstance(done.exception, QtideError):
        return Done(done.exception.exit_code, done.stdout, str(done.exception))
    return Done(done.exit_code, done.stdout, done.stderr)


def as_user(service: LocalService, user: str, account: str = "") -> dict[str, str]:
    return {"QTIDE_URL": service.url, "QTIDE_TOKEN": service.token(user, account)}


def as_operator(service: LocalService) -> dict[str, str]:
    return {"QTIDE_URL": service.socket}


def announced(service: LocalService) -> Path:
    """A home in which the service is the one that this user started."""
    home = service.folder / "home"
    place = home / "qtide" / "service"
    place.mkdir(parents=True, exist_ok=True)
    (place / "access.json").write_text((service.state / "access.json").read_text())
    return home


def said(done: Done) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_estimate_and_the_reason_of_a_wait_are_told(
    service: LocalService, tmp_path: Path
) -> None:
    ada, file = as_user(service, "ada", "maths"), tmp_path / "burst.json"
    file.write_text('{"seconds": 2.5}')
    told = qtide("estimate", "dev", str(file), "--format", "burst", **ada)
    assert told.stdout.startswith("2.5 QPU seconds: 2.5 s and 0 ms per shot")
    assert "left today for the account maths afterwards: 57.5 QPU seconds" in told.stdout
    found = said(qtide("estimate", "dev", str(file), "--format", "burst", "--json", **ada))
    assert found["qpu_seconds"] == 2.5
    unnamed = qtide("estimate", "dev", str(file), **ada)
    assert unnamed.returncode == 2 and "--format" in unnamed.stderr
    client = service.client("ada")
    first, second = (client.submit(Burst(20.0), "dev") for _ in range(2))
    assert "the policy is fair" in qtide("why", second.id[:8], **as_user(service, "ada")).stdout
    assert said(qtide("why", second.id, "--json", **as_user(service, "ada")))["tasks_ahead"] == 0
    for task in (second, first):
        task.cancel()


def test_a_token_is_created_used_listed_and_revoked(service: LocalService) -> None:
    state = ("--state", str(service.state))
    made = qtide("token", "new", "ada", "--account", "physics", "--name", "laptop", *state)
    env = {"QTIDE_URL": service.url, "QTIDE_TOKEN": made.stdout.strip()}
    assert said(qtide("devices", "--json", **env))[0]["state"] == "idle"
    listed = said(qtide("token", "list", "--json", *state))
    (mine,) = [row for row in listed if row["name"] == "laptop"]
    assert (mine["user"], mine["account"]) == ("ada", "physics")
    assert made.stdout.strip() not in json.dumps(listed)
    assert qtide("token", "revoke", mine["token"], *state).returncode == 0
    wait_until(lambda: qtide("devices", **env).returncode == 1, 20.0)
    again = qtide("token", "revoke", mine["token"], *state)
    assert (again.returncode, "no token's digest begins" in again.stderr) == (2, True)


def test_a_token_in_a_file_is_for_its_owner_alone(service: LocalService, here: Path) -> None:
    done = qtide("token", "new", "eve", "--to", "eve.token", "--state", str(service.state))
    assert (here / "eve.token").stat().st_mode & 0o777 == 0o600
    token = (here / "eve.token").read_text().strip()
    assert token not in done.stdout + done.stderr
    env = {"QTIDE_URL": service.url, "QTIDE_TOKEN": token}
    assert qtide("devices", **env).returncode == 0
    odd = qtide("token", "new", "eve", "--account", "math", "--state", str(service.state))
    assert "usage of an account 'math'; did you mean 'maths'?" in odd.stderr
    known = qtide("token", "new", "eve", "--account", "maths", "--state", str(service.state))
    assert (known.returncode, known.stderr) == (0, "")
    empty = qtide("token", "new", "", "--state", str(service.state))  # an unset variable's value
    assert (empty.returncode, "name is empty" in empty.stderr) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        *(["(site)"], ["operator"], ["a\nb"], ["ada", "--account", "(site)"]),
        *(["ada", "--days", "0"], ["ada", "--days", "1e30"], ["ada", "--to", "nowhere/token"]),
    ],
)
def test_what_makes_no_sense_makes_no_token(service: LocalService, words: list[str]) -> None:
    before = printed("token", "list", "--state", service.state)
    assert "\n" not in refused("token", "new", *words, "--state", service.state).strip()
    assert printed("token", "list", "--state", service.state) == before


def test_the_page_of_a_service_at_its_socket_has_a_link_for_browsers(service: LocalService) -> None:
    link = printed("page", "--no-browser", "--url", service.socket)
    assert link.startswith(f"{service.url}/#key=")


def test_tokens_are_made_at_the_service_that_the_environment_names(service: LocalService) -> None:
    home = announced(service)
    for url in (service.url, service.socket):
        made = qtide("token", "new", "fay", QTIDE_URL=url, XDG_STATE_HOME=str(home)).stdout.strip()
        env = {"QTIDE_URL": service.url, "QTIDE_TOKEN": made}
        assert qtide("devices", **env).returncode == 0
    away = qtide("token", "new", "fay", QTIDE_URL="http://127.0.0.1:9")
    assert away.returncode == 2
    assert "no service on this host listens at http://127.0.0.1:9" in away.stderr


def test_a_device_in_place_of_a_run_is_told_apart(service: LocalService, here: Path) -> None:
    done = qtide("resume", "dev", **as_operator(service))
    assert done.returncode == 2
    assert "qtide resume --device dev" in done.stderr
    assert "--device" not in qtide("resume", "other", **as_operator(service)).stderr


def test_the_queue_shows_why_a_task_waits(service: LocalService) -> None:
    client = service.client("bob")
    first, second = (client.submit(Burst(30.0), "dev") for _ in range(2))
    env = as_user(service, "bob")
    rows = said(qtide("queue", "--json", **env))
    assert {row["id"] for row in rows} == {first.id, second.id}
    shown = qtide("queue", **env).stdout
    assert second.id[:8] in shown
    assert "queue" in shown
    assert "no task waits" in qtide("queue", **as_user(service, "somebody else")).stdout
    assert first.id[:8] in qtide("queue", "--everybody", **as_operator(service)).stdout
    for task in (first, second):
        task.cancel()
        task.refresh(10.0)  # the one on the device ends when the device lets go of it
    assert "cancelled" in qtide("queue", "--all", **env).stdout


def test_usage_as_a_table_as_json_and_as_csv(service: LocalService) -> None:
    service.client("cyd", "maths").run(Burst(0.05), "dev")
    env = as_user(service, "cyd", "maths")
    words = ("usage", "--by", "account", "--by", "user", "--since", "1d")
    (row,) = said(qtide(*words, "--json", **env))
    assert (row["account"], row["user"], row["tasks"]) == ("maths", "cyd", 1)
    table = list(csv.DictReader(io.StringIO(qtide(*words, "--csv", **env).stdout)))
    assert float(table[0]["qpu_seconds"]) == pytest.approx(row["qpu_seconds"])
    assert "maths" in qtide(*words, **env).stdout
    wrong = qtide("usage", "--since", "yesterday", **env)
    assert (wrong.returncode, "is neither a date" in wrong.stderr) == (2, True)


def test_drain_and_resume_are_for_operators(service: LocalService) -> None:
    refused = qtide("drain", "dev", **as_user(service, "mallory"))
    assert (refused.returncode, "not an operator" in refused.stderr) == (1, True)
    env = as_operator(service)
    assert (
        said(qtide("drain", "dev", "--reason", "cooling", "--json", **env))["reason"] == "cooling"
    )
    assert "cooling" in qtide("devices", **env).stdout
    assert said(qtide("resume", "--device", "dev", "--json", **env))["state"] == "idle"
    unknown = qtide("drain", "nowhere", **env)
    assert "there is no device 'nowhere'; there are: dev" in unknown.stderr
    licences = qtide("drain", "dev", "--licences", **env)
    assert "not connected to Slurm" in licences.stderr


def test_a_reason_stays_until_another_one_is_given(service: LocalService) -> None:
    env = as_operator(service)
    for words, reason in (
        ((), "maintenance"),
        (("--reason", "cooling"), "cooling"),
        ((), "cooling"),
    ):
        assert said(qtide("drain", "dev", *words, "--json", **env))["reason"] == reason
    task = service.client("ida").submit(Burst(0.0), "dev")
    (row,) = said(qtide("queue", "--json", **as_user(service, "ida")))
    assert (row["reason"], row["expected_start"], row["position"]) == ("maintenance", None, 0)
    assert said(qtide("resume", "--device", "dev", "--json", **env))["reason"] is None
    task.result()


def test_owners_and_operators_cancel_tasks_by_a_prefix(service: LocalService, here: Path) -> None:
    first, second, third = (service.client("joe").submit(Burst(30.0), "dev") for _ in range(3))
    joe, eve = as_user(service, "joe"), as_user(service, "eve")
    stranger = qtide("cancel", third.id[:8], **eve)
    assert (stranger.returncode, "and you have no task" in stranger.stderr) == (2, True)
    assert "is cancelled" in qtide("cancel", third.id[:8], **joe).stdout
    again = qtide("cancel", third.id, **joe)
    assert (again.returncode, "is over already; it is cancelled" in again.stderr) == (2, True)
    done = said(qtide("cancel", second.id[:8], "--json", **as_operator(service)))
    assert done == {"task": second.id, "state": "cancelled"}
    assert qtide("cancel", first.id, **joe).returncode == 0
    assert first.refresh(10.0).state == "cancelled"


def test_what_may_be_a_run_or_a_task_is_not_cancelled(service: LocalService, here: Path) -> None:
    task = service.client("kim").submit(Burst(30.0), "dev")
    (here / "qtide-runs" / f"{task.id[:8]}-run").mkdir(parents=True)
    (here / "qtide-runs" / f"{task.id[:8]}-run" / "run.json").write_text("{}")
    env = as_user(service, "kim")
    both = qtide("cancel", task.id[:8], **env)
    assert (both.returncode, "give more characters" in both.stderr) == (2, True)
    assert f"{task.id[:8]}-run" in both.stderr
    assert qtide("cancel", task.id, **env).returncode == 0
    assert task.refresh(10.0).state == "cancelled"


def test_what_is_left_of_a_quota(service: LocalService) -> None:
    service.client("lea", "maths").run(Burst(0.25), "dev")
    env = as_user(service, "lea", "maths")
    user, account = said(qtide("usage", "--left", "--json", **env))
    assert (user["of"], user["name"], user["tasks_left"]) == ("user", "lea", 10_000)
    assert account["qpu_seconds_left"] == pytest.approx(60.0 - account["qpu_seconds"])
    assert account["qpu_seconds"] >= 0.25
    assert user["qpu_seconds_left"] is None
    assert "no limit" in qtide("usage", "--left", **env).stdout
    with_more = qtide("usage", "--left", "--csv", **env)
    assert (with_more.returncode, "without other options" in with_more.stderr) == (2, True)
    never = qtide("usage", "--left", QTIDE_URL=service.url)
    assert "qtide token new" in never.stderr


def test_a_task_is_forgotten_by_command_and_by_python(service: LocalService) -> None:
    env, client = as_user(service, "fay"), service.client("fay")
    by_command, by_python = (client.submit(Burst(0.0, 1), "dev") for _ in range(2))
    assert by_command.result(30.0) == by_python.result(30.0) == 1
    done = qtide("cancel", by_command.id, "--forget", **env)
    assert done.returncode == 0, done.stderr
    by_python.forget()
    for each in (by_command, by_python):
        with pytest.raises(ServiceFailed, match="have been deleted; it was done") as gone:
            client.task(each.id)
        assert gone.value.status == 410
    assert client.call("GET", "/v1/usage")[0]["tasks"] == 2, "its usage stays"


def test_the_description_of_the_api_is_a_page_without_scripts_and_foreign_parts(
    service: LocalService,
) -> None:
    page = urllib3.request("GET", f"{service.url}/docs").data.decode()
    assert "/v1/tasks/{id}" in page and "Idempotency-Key" in page
    assert "<script" not in page and "src=" not in page and "//cdn" not in page
    assert "width=device-width" in page and "color-scheme:light dark" in page
    with pytest.raises(ServiceFailed, match="there is no task with that id here"):
        Client(service.url, service.token()).task("nobody's")


def test_every_mistake_of_a_configuration_is_named(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('lisen = "127.0.0.1:1"\n[devices.dev]\nkind = "burst"\nslots = 0\n')
    done = qtide("serve", "--check", str(file))
    assert done.returncode == 2
    assert f"{file}: lisen: there is no such entry; did you mean listen?" in done.stderr
    assert f"{file}: devices.dev.slots: " in done.stderr
    file.write_text('[devices.dev]\nkind = "burst"\n[devices.lamp]\nkind = "lamp"\n')
    done = qtide("serve", "--check", str(file))
    assert (done.returncode, "devices.lamp: there is no kind" in done.stderr) == (2, True)
    file.write_text('[devices.dev]\nkind = "burst"\n')
    done = qtide("serve", "--check", str(file))
    assert (done.returncode, "every device starts" in done.stdout) == (0, True)


def test_a_device_that_does_not_start_is_found_before_it_is_served(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('[devices.far]\nkind = "iqm"\nurl = "http://127.0.0.1:9"\n')
    done = qtide("serve", "--check", str(file))
    assert (done.returncode, "devices.far: the device did not start" in done.stderr) == (2, True)


def test_without_a_service_a_sentence_says_what_to_do(tmp_path: Path) -> None:
    done = qtide("devices", XDG_STATE_HOME=str(tmp_path))
    assert done.returncode == 2
    assert "qtide serve --demo" in done.stderr
    gone = qtide("devices", QTIDE_URL="http://127.0.0.1:9")
    assert (gone.returncode, "does not answer" in gone.stderr) == (1, True)


def test_serve_needs_a_configuration_or_demo(tmp_path: Path) -> None:
    for words in ((), ("--demo", "serve.toml")):
        done = qtide("serve", *words)
        assert (done.returncode, "either a configuration or --demo" in done.stderr) == (2, True)
    missing = qtide("serve", str(tmp_path / "nowhere.toml"))
    assert (missing.returncode, "cannot be read" in missing.stderr) == (2, True)


def test_the_user_who_started_the_service_needs_no_variables(service: LocalService) -> None:
    home = announced(service)
    assert (service.state / "access.json").stat().st_mode & 0o077 == 0
    assert "dev" in qtide("devices", XDG_STATE_HOME=str(home)).stdout
    named = qtide("devices", "--url", service.url, XDG_STATE_HOME=str(home))
    assert "dev" in named.stdout, named.stderr


def task(name: str, position: int | None, state: str = "queued") -> dict[str, Any]:
    """A task as the service describes it, as far as its turn depends on it."""
    return {"id": name, "device": "dev", "position": position, "state": state, "submitted": 1.0}


def test_tasks_that_a_quota_blocks_are_listed_last() -> None:
    tasks = [
        task("blocked", None),
        task("second", 1),
        task("first", 0),
        task("on", None, "running"),
    ]
    assert [each["id"] for each in sorted(tasks, key=_turn)] == ["first", "on", "second", "blocked"]


def test_a_time_of_another_day_has_its_date(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.mktime((2026, 3, 1, 22, 0, 0, 0, 0, -1))
    monkeypatch.setattr(time, "time", lambda: now)
    assert clock(now + 3600) == "23:00:00"
    assert clock(now + 7200) == "2026-03-02 00:00"
    assert clock(None) is None


def test_waiting_for_a_quota_is_said_once() -> None:
    blocked = {"id": "a1", "state": "queued", "reason": "quota", "expected_start": 86_400.0}

    class Service:
        def call(self, *_: Any) -> dict[str, Any]:
            return blocked

    remote = RemoteTask(cast("Client", Service()), blocked)
    with pytest.warns(UserWarning, match="a1 waits until 1970-01-0.*quota is used up") as told:
        remote.refresh()
        remote.refresh()
    assert len(told) == 1
