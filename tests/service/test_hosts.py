"""Service, standby, database and clients on hosts of their own, whose network fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from qtide.service.fence import workers
from qtide.service.local_service import LocalService
from qtide.service.postgresql import DEPOSED
from tests.service.network import Host, Network
from tests.service.postgres import PostgresServer
from tests.service.serving import is_alive, wait_until
from tests.service.test_failover import Load, Pair, check, refusal


class HostedPair(Pair):
    """A service and its standby, whose clock is 2 s ahead, each on a host of its own."""

    ahead = 2.0

    def __init__(self, folder: Path, network: Network, database: str) -> None:
        self._hosts = {"first": network.host("a"), "second": network.host("b", self.ahead)}
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        super().__init__(folder, database)

    def _made(self, folder: Path) -> LocalService:
        folder.mkdir()
        host = self._hosts[folder.name]
        made = self._authority.issue_cert(host.address)
        made.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
        made.private_key_pem.write_to_path(str(folder / "key.pem"))
        files = f'certificate = "{folder / "cert.pem"}"\nkey = "{folder / "key.pem"}"'
        head = f'store = "{self.database}"\n{files}'
        return LocalService(folder, self.device, head, address=host.address, within=host.within)

    def settle(self) -> None:
        """Start again what ended, as systemd would, until one leads and the other stands by."""

        def settled() -> bool:
            for each in self.services:
                if not is_alive(each.pid):
                    each.start(ready=False)
            return sorted(map(str, map(refusal, self.services))) == ["None", "standby"]

        wait_until(settled)

    def other(self, service: LocalService) -> LocalService:
        """The one of the two that is not this one."""
        return next(each for each in self.services if each is not service)

    def host_of(self, service: LocalService) -> Host:
        """Where a service runs."""
        return self._hosts[service.folder.name]


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network()
    yield made
    made.remove()


@pytest.fixture
def database(network: Network) -> Iterator[tuple[Host, PostgresServer]]:
    host = network.host("d")
    server = PostgresServer(host.address, host.within)
    yield host, server.start()
    server.stop()


@pytest.fixture
def hosted(
    tmp_path: Path,
    network: Network,
    database: tuple[Host, PostgresServer],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[HostedPair]:
    for name in ("SSL_CERT_FILE", "QTIDE_CA_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "ca.pem"))
    made = HostedPair(tmp_path, network, database[1].url)
    yield made
    made.end()


def test_a_network_that_parts_hosts_and_is_slow_loses_nothing_and_lets_one_lead(
    hosted: HostedPair, database: tuple[Host, PostgresServer]
) -> None:
    load = Load(hosted.client)
    load.more(10)
    # the leader's host is cut off from everybody
    old = hosted.leader()
    hosted.host_of(old).cut_off()
    wait_until(lambda: refusal(hosted.other(old)) is None)
    wait_until(lambda: not workers(old.pid))
    load.more(5)
    hosted.host_of(old).rejoin()
    assert old.wait(60.0) == DEPOSED
    hosted.settle()
    # the database hears the leader, but its answers vanish; clients still reach the leader
    there, _ = database
    deaf = hosted.leader()
    there.ignore(hosted.host_of(deaf))
    wait_until(lambda: refusal(hosted.other(deaf)) is None)
    load.more(5)
    there.heed(hosted.host_of(deaf))
    assert deaf.wait(60.0) == DEPOSED
    hosted.settle()
    # what the database says takes longer
    there.slow_down("400kbit")
    load.more(5)
    check(hosted, load)
    (booked,) = hosted.rows("SELECT count(*) AS number FROM occupations WHERE cause = ''")
    assert booked["number"] >= len(load.answers)
