from __future__ import annotations

import ast
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

import pytest
import trustme

from qtide.backends.clusters.slurm import prolog
from qtide.backends.clusters.slurm.deployment import announce, deploy
from qtide.core.sockets import free_ports
from tests.service.admission.site import Site
from tests.service.admission.stub_service import Service, serving
from tests.service.admission.users import User

SHOW = "env | grep -E '^(QTIDE|IQM|QRMI|[a-z_0-9]+_QRMI)_' | sort"
ON_Q1 = ("--partition=quantum", "--licenses=qpu:1")


@pytest.fixture
def service(site: Site) -> Iterator[Service]:
    """The service that the box's prolog knows."""
    with serving(site, devices=["star", "star-24"]) as service:
        tell(site, service.url)
        yield service
    (site.folder / "etc/service.conf").unlink(missing_ok=True)


def tell(site: Site, url: str, ca: str = "") -> None:
    announce(site.conf.parent, url, ca=ca, munge_socket=str(site.munge_socket))


def variables(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def batch(site: Site, user: User, script: str, *options: str) -> str:
    """What a batch job prints."""
    place = site.folder / "tmp" / f"{user.name}.out"
    place.unlink(missing_ok=True)
    place.touch()
    os.chown(place, user.uid, user.gid)
    words = ("sbatch", "--wait", f"--output={place}", *options, f"--wrap={script}")
    site.run(user, *words)
    return place.read_text()


def test_a_task_finds_what_clients_look_for(site: Site, service: Service) -> None:
    user = User("nobody")
    found = variables(site.run(user, "srun", *ON_Q1, "sh", "-c", SHOW))
    (token,) = service.grants
    assert found == {
        "QTIDE_URL": service.url,
        "QTIDE_TOKEN": token,
        "QTIDE_JOB": str(service.grants[token].job),
        "IQM_SERVER_URL": service.url,
        "IQM_TOKEN": token,
        "QRMI_JOB_QPU_RESOURCES": "star",  # shells drop a variable named star-24_…
        "QRMI_JOB_QPU_TYPES": "iqm-server",
        "star_QRMI_IQM_ISA_ENDPOINT": service.url,
        "star_QRMI_IQM_ISA_TOKEN": token,
    }
    assert service.grants[token].user == "nobody"


@pytest.mark.parametrize("slot", ["--licenses=qpu:1", "--gres=qpu:1"])
def test_a_batch_script_and_its_steps_share_a_token(
    site: Site, service: Service, slot: str
) -> None:
    script = "echo $QTIDE_TOKEN; srun sh -c 'echo $QTIDE_TOKEN'; srun --export=NONE /usr/bin/env"
    shown = batch(site, User("daemon"), script, "--partition=quantum", slot).splitlines()
    assert len(shown[0]) > 20 and shown[0] == shown[1]
    bare = next(line.removeprefix("QTIDE_TOKEN=") for line in shown if "QTIDE_TOKEN=" in line)
    assert {shown[0], bare} == set(service.grants) and service.questions == 2


def test_every_task_of_a_step_gets_one(site: Site, service: Service) -> None:
    shown = site.run(User("nobody"), "srun", "-n3", *ON_Q1, "sh", "-c", "echo $QTIDE_TOKEN")
    assert set(shown.split()) == set(service.grants) and len(service.grants) == 3


def test_all_parts_of_a_heterogeneous_job_get_one(site: Site, service: Service) -> None:
    parts = ("--partition=compute", "-N1", ":", "--partition=quantum", "--gres=qpu:1")
    step = "srun --het-group=0,1 sh -c 'echo $QTIDE_TOKEN'"
    shown = site.run(User("nobody"), "salloc", "--quiet", *parts, "sh", "-c", step)
    assert set(shown.split()) == set(service.grants) and len(service.grants) == 2


def test_a_shell_of_salloc_asks_by_hand_and_its_steps_need_not(
    site: Site, service: Service
) -> None:
    by_hand = f'eval "$({site.folder}/etc/prolog.sh $SLURM_JOB_ID)"'
    script = f"echo before=$QTIDE_TOKEN; srun true; {by_hand}; echo after=$QTIDE_TOKEN"
    shown = site.run(User("nobody"), "salloc", "--quiet", *ON_Q1, "sh", "-c", script)
    before, after = (line.partition("=")[2] for line in shown.splitlines())
    assert before == "" and after in service.grants


def test_of_several_services_the_one_that_leads_gives_the_token(
    site: Site, service: Service
) -> None:
    (nobody,) = free_ports(1)
    urls = f"http://127.0.0.1:{nobody},{service.url}"
    announce(site.conf.parent, urls, munge_socket=str(site.munge_socket))
    found = variables(site.run(User("nobody"), "srun", *ON_Q1, "sh", "-c", SHOW))
    assert found["QTIDE_TOKEN"] in service.grants
    assert (found["QTIDE_URL"], found["IQM_SERVER_URL"]) == (urls, service.url)


def test_jobs_without_a_slot_ask_nobody(site: Site, service: Service) -> None:
    script = f'{SHOW}; srun sh -c "{SHOW}"'
    lines = set(batch(site, User("nobody"), script, "--partition=compute").splitlines())
    assert {line.partition("=")[0] for line in lines} == {"QTIDE_NO_SLOT"} and len(lines) == 1
    assert service.questions == 0


def test_a_licence_gives_a_token_on_any_partition(site: Site, service: Service) -> None:
    words = ("srun", "--partition=compute", "--licenses=qpu:1", "sh", "-c", "echo $QTIDE_TOKEN")
    assert site.run(User("nobody"), *words).strip() in service.grants


def test_who_cannot_be_told_whether_there_is_a_slot_hears_that(
    site: Site, service: Service
) -> None:
    file = site.folder / "etc/service.conf"
    known = file.read_text()
    file.write_text(known + "squeue() { false; }\ntimeout() { false; }\n")
    try:
        shown = site.run(User("nobody"), "srun", "--partition=compute", "sh", "-c", SHOW)
    finally:
        file.write_text(known)
    assert "Slurm did not say in time whether it holds a QPU" in variables(shown)["QTIDE_REFUSED"]


def test_an_operator_says_which_words_tell_of_a_slot(site: Site, service: Service) -> None:
    file = site.folder / "etc/service.conf"
    file.write_text(file.read_text() + "slots=all\n")
    words = ("srun", "--partition=compute", "--licenses=qpu:1", "sh", "-c", "echo $QTIDE_TOKEN")
    assert site.run(User("nobody"), *words).strip() in service.grants


def test_a_token_of_another_job_is_not_kept(site: Site, service: Service) -> None:
    words = ("srun", *ON_Q1, "sh", "-c", "echo $QTIDE_TOKEN")
    shown = site.run(User("nobody"), *words, QTIDE_TOKEN="stale", QTIDE_JOB="1")
    assert shown.strip() in service.grants


def test_who_is_refused_hears_why_and_runs_on(site: Site, service: Service) -> None:
    words = ("--partition=quantum", "sh", "-c", SHOW)
    found = variables(site.run(User("nobody"), "srun", *words, QTIDE_TOKEN="stale"))
    assert "holds no slot of a QPU" in found["QTIDE_REFUSED"]
    assert set(found) == {"QTIDE_REFUSED"} and service.grants == {}


def test_a_service_that_asks_for_patience_is_asked_again(site: Site, service: Service) -> None:
    service.busy = 2
    shown = site.run(User("nobody"), "srun", *ON_Q1, "sh", "-c", "echo $QTIDE_TOKEN")
    assert shown.strip() in service.grants and service.questions == 3


def test_patience_ends(site: Site, service: Service) -> None:
    service.busy = 100
    shown = site.run(User("nobody"), "srun", *ON_Q1, "sh", "-c", SHOW)
    assert "Slurm does not answer queries about jobs" in shown
    assert service.questions == prolog.ATTEMPTS


def test_a_service_that_is_not_there_fails_no_job(site: Site, service: Service) -> None:
    tell(site, "http://127.0.0.1:1")
    shown = site.run(User("nobody"), "srun", *ON_Q1, "sh", "-c", f"{SHOW}; echo on")
    assert "Connection refused" in shown and shown.endswith("on\n")


def test_a_box_without_a_service_has_no_tokens(site: Site) -> None:
    (site.folder / "etc/service.conf").unlink(missing_ok=True)  # the one it was put up with
    assert site.run(User("nobody"), "srun", *ON_Q1, "sh", "-c", f"{SHOW}; echo on") == "on\n"


def test_a_service_is_known_by_its_certificate(site: Site, tmp_path: Path) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = authority.issue_cert("127.0.0.1")
    certificate.configure_cert(tls)
    private = site.folder / "etc/ca.pem"
    authority.cert_pem.write_to_path(str(private))
    private.chmod(0o644)
    with serving(site, tls=tls) as service:
        (pem,) = certificate.cert_chain_pems
        service.audience = prolog.certified(ssl.PEM_cert_to_DER_cert(pem.bytes().decode()))
        tell(site, service.url)
        shown = site.run(User("nobody"), "srun", *ON_Q1, "sh", "-c", SHOW)
        assert "CERTIFICATE_VERIFY_FAILED" in shown and service.questions == 0
        tell(site, service.url, ca=str(private))
        found = variables(site.run(User("nobody"), "srun", *ON_Q1, "sh", "-c", SHOW))
    assert found["QTIDE_TOKEN"] in service.grants
    assert found["QTIDE_CA_FILE"] == str(private)
    (site.folder / "etc/service.conf").unlink(missing_ok=True)


THIEF = """
import socket, ssl, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    caught = server.accept()[0]
    if sys.argv[1:]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[1])
        caught = context.wrap_socket(caught, server_side=True)
    print(caught.recv(100_000).decode().partition("Munge ")[2].split()[0])
"""


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_credential_that_somebody_else_caught_is_good_for_nothing(
    site: Site, service: Service, tmp_path: Path, encrypted: bool
) -> None:
    """Another user took the port while the service was away, with a certificate of the site's."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca"))
    stolen = site.folder / "tmp/thief.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(stolen))
    stolen.chmod(0o644)
    words = ["/usr/bin/python3", "-c", THIEF, *([str(stolen)] if encrypted else [])]
    thief = subprocess.Popen(User("nobody").words(*words), stdout=subprocess.PIPE, text=True)
    assert thief.stdout is not None
    scheme = "https" if encrypted else "http"
    url = f"{scheme}://127.0.0.1:{thief.stdout.readline().strip()}"
    settings = prolog.PrologSettings(
        url, ca=str(tmp_path / "ca"), munge_socket=str(site.munge_socket)
    )
    with pytest.raises((OSError, HTTPException)):
        prolog.admitted(settings, 7)
    caught = thief.communicate(timeout=30)[0].strip()
    status, answer = service.answer(caught, service.request(prolog.PATH, b'{"job": 7}'))
    assert status == 401
    assert "made for another request or another service" in answer["message"]


@pytest.fixture
def deaf(site: Site) -> Iterator[str]:
    """A service that accepts connections, sends a byte now and then, and never finishes."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server, over))
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        over.set()
        thread.join()


def drip(server: socket.socket, over: threading.Event) -> None:
    connection, _ = server.accept()
    with connection:
        while not over.wait(0.1):
            try:
                connection.sendall(b"H")
            except OSError:
                return


def test_a_service_that_never_ends_is_not_waited_for(
    site: Site, deaf: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(site, deaf)
    monkeypatch.setattr(prolog, "LIMIT", 1.0)
    monkeypatch.setattr("sys.argv", ["prolog.py", "7"])
    monkeypatch.setenv("QTIDE_SERVICE_CONF", str(site.folder / "etc/service.conf"))
    assert prolog.main() == 1
    assert "no answer within 1 s" in capsys.readouterr().err
    (site.folder / "etc/service.conf").unlink(missing_ok=True)


def test_by_hand_a_failure_is_a_failure(tmp_path: Path) -> None:
    program = deploy(tmp_path)
    done = subprocess.run([program, "7"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert "job 7 got no token for the QPU service" in done.stderr


@pytest.mark.parametrize(
    "answer", [{"token": "a\nexport LD_PRELOAD=x"}, {"token": "a\0b", "devices": ["star"]}]
)
def test_an_answer_that_would_write_lines_of_its_own_is_refused(answer: dict[str, object]) -> None:
    with pytest.raises(prolog.AdmissionFailed, match="no environment can hold"):
        prolog.variables(prolog.PrologSettings("http://x"), "http://x", 7, answer)


def test_operators_may_name_certificates_for_everything() -> None:
    settings = prolog.PrologSettings("http://x/", bundle="/etc/all.pem")
    found = prolog.variables(settings, "http://x", 7, {"token": "t"})
    assert found["REQUESTS_CA_BUNDLE"] == "/etc/all.pem" and found["QTIDE_URL"] == "http://x"


def test_old_pythons_can_read_it() -> None:
    text = Path(prolog.__file__).read_text()
    tree = ast.parse(text, feature_version=(3, 9))
    imported = [each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    assert not any("qtide" in str(module) for module in imported)
