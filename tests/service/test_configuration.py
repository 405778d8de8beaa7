"""One file configures everything; a mistake in it is one sentence, before anything starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from qtide.backends.client.access import AUTHORITY, access_files
from qtide.backends.client.client import Client, ServiceFailed
from qtide.backends.payloads.payload import Burst
from qtide.core.errors import UsageError
from qtide.service.configuration import Configuration, demonstration
from qtide.service.configuration_check import examined, read_configuration
from qtide.service.local_service import QTIDE, LocalService
from tests.interfaces.cli.inside import called
from tests.service.serving import BURSTS, wait_until

WRONG = {
    "listen = 17\n" + BURSTS: "listen",
    'listen = "127.0.0.1"\n' + BURSTS: "give address and port",
    'listen = "0.0.0.0:8037"\n' + BURSTS: "needs TLS",
    'listen = "0.0.0.0:8037"\nanonymous = true\n' + BURSTS: "loopback only",
    "colour = 1\n" + BURSTS: "colour",
    "": "devices",
    '[devices.dev]\nkind = "burst"\npolicy = "luck"\n': "devices.dev.policy: there is no policy "
    "'luck'; there are: fair, fifo, jobs, priority, shortest",
    '[devices.dev]\nkind = "burst"\napis = ["fax"]\n': "devices.dev.apis: there is no API 'fax'; "
    "there are: admission, iqm, maintenance, native, page",
    '[devices.dev]\nkind = "lamp"\n': "devices.dev: there is no kind of device 'lamp'",
    '[devices.dev]\nkind = "annealer"\nsweep = 7\n': "devices.dev: ",
    BURSTS + '[slurm]\ncluster = "alps"\n': "slurm.cluster",
    '[devices.dev]\nkind = "burst"\nprofile = "steam"\n': "no QPU profile 'steam'",
    '[devices."a b"]\nkind = "burst"\n': "devices.a b",
    '[devices.dev]\nkind = "burst"\nretries = -1\n': "devices.dev.retries",
    BURSTS + "[quotas.user]\ntasks = 0\n": "quotas.user.tasks",
    "[devices": "cannot be read",
    f'lisen = "127.0.0.1:1"\n{BURSTS}': "lisen: there is no such entry; did you mean listen?",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_is_reported_in_one_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_configuration(file)
    assert WRONG[text] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_entries_that_the_service_does_not_know_are_the_devices_own() -> None:
    setup = Configuration.model_validate(
        {"devices": {"star": {"kind": "star", "noisy": True, "policy": "fifo"}}}
    ).devices["star"]
    assert (setup.options, setup.policy) == ({"noisy": True}, "fifo")


def test_another_python_knows_devices_that_this_one_does_not(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    python = tmp_path / "python"
    file.write_text(f'[devices.dev]\nkind = "lamp"\npython = "{python}"\n')
    with pytest.raises(UsageError, match="python cannot be started: No such file"):
        read_configuration(file)
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    assert read_configuration(file).devices["dev"].kind == "lamp"
    file.write_text(f'[devices.dev]\nkind = "lamp"\npython = "{sys.executable}"\n')
    with pytest.raises(UsageError, match="there is no kind of device 'lamp'"):
        read_configuration(file)


def test_the_state_is_where_clients_look_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    served = Configuration.model_validate({"devices": {"dev": {"kind": "burst"}}})
    *own, site = access_files()
    assert own == [each.folder / "access.json" for each in (served, demonstration())]
    assert site == Path("/run/qtide/access.json")


def test_a_demonstration_is_for_the_loopback_only() -> None:
    demo = demonstration()
    assert demo.anonymous
    assert demo.host == "127.0.0.1"
    with pytest.raises(UsageError, match="loopback only"):
        demo.listening("0.0.0.0:8037")


def test_the_example_in_the_docs_is_a_configuration() -> None:
    example = Path(__file__).parents[2] / "docs" / "examples" / "serve.toml"
    assert read_configuration(example).slurm is not None


def test_a_service_that_cannot_listen_says_so(tmp_path: Path) -> None:
    with LocalService(tmp_path, BURSTS) as first:
        file = tmp_path / "second.toml"
        words = f'listen = "127.0.0.1:{first.port}"\nstate = "{tmp_path / "second"}"\n'
        file.write_text(words + BURSTS)
        done = subprocess.run(
            [QTIDE, "serve", file], capture_output=True, text=True, check=False, timeout=60
        )
    assert done.returncode == 1
    assert "cannot listen on" in done.stderr
    assert "Traceback" not in done.stderr


def test_two_services_cannot_share_a_state(tmp_path: Path) -> None:
    with LocalService(tmp_path, BURSTS) as first:
        file = tmp_path / "second.toml"
        file.write_text(f'listen = "127.0.0.1:0"\nstate = "{first.state}"\n{BURSTS}')
        done = subprocess.run(
            [QTIDE, "serve", file], capture_output=True, text=True, check=False, timeout=60
        )
    assert done.returncode == 1
    assert "another service" in done.stderr


def test_with_a_certificate_it_uses_tls_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    head = f'certificate = "{tmp_path / "cert.pem"}"\nkey = "{tmp_path / "key.pem"}"'
    service = LocalService(tmp_path, BURSTS, head)
    service.start(ready=False)
    try:
        wait_until((service.state / "access.json").exists)
        url = f"https://127.0.0.1:{service.port}"
        monkeypatch.setenv(AUTHORITY, str(tmp_path / "ca.pem"))
        assert Client(url, service.token()).run(Burst(0.0, "secret"), "dev") == "secret"
        monkeypatch.delenv(AUTHORITY)
        with pytest.raises(ServiceFailed, match="does not answer"):
            Client(url, service.token(), patience=0.0).devices()
        with pytest.raises(ServiceFailed, match="does not answer"):
            Client(service.url, service.token(), patience=0.0).devices()
    finally:
        service.stop()


def test_every_fault_is_named_also_those_behind_others(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(
        'listen = "0.0.0.0:8037"\nretention = 3\n'
        '[quotas.user]\ntasks = 0\n[devices.dev]\nkind = "burst"\nslot = 3\n'
        '[devices.star]\nkind = "star"\npolicy = "luck"\n'
    )
    found, mistakes = examined(file)
    assert found is None
    said = "\n".join(mistakes)
    for part in ("retention", "quotas.user.tasks", "luck", "needs TLS", "did you mean slots?"):
        assert part in said, mistakes


def test_a_check_warns_of_a_database_that_does_not_answer(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(f'store = "postgresql://127.0.0.1:1/none"\n{BURSTS}')
    done = called("serve", "--check", file)
    assert (done.exit_code, "warning: the database cannot be reached" in done.stderr) == (0, True)


@pytest.mark.parametrize("url", ["nonsense", "https://here,there"])
def test_a_url_without_its_beginning_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="URL begins with http"):
        Client(url)
