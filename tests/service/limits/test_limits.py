"""The nouns of the limits, each by itself."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from qtide.core.world.real import RealWorld
from qtide.core.world.virtual import VirtualWorld
from qtide.service.acceptor import (
    UNKNOWN,
    Accepted,
    Connections,
    Peer,
    loopback_uid,
    peer_of,
)
from qtide.service.limits import Contention, FairSemaphore, LeakyBucket, OverLimit, Overloaded


def test_places_are_limited_for_each_and_for_all() -> None:
    budget = FairSemaphore(VirtualWorld(), "bytes", 10, 15)
    budget.take("ada", 10)
    with pytest.raises(OverLimit, match="ada may have 10 bytes at once"):
        budget.take("ada")
    budget.take("bob", 5)
    with pytest.raises(Overloaded):
        budget.take("cyd")
    budget.give_back("ada", 10)
    with budget.taking("cyd", 10):
        assert budget.taken == 15
    assert budget.taken == 5


def test_callers_take_turns_however_often_each_asks() -> None:
    world, order = VirtualWorld(), list[str]()

    async def work(turns: FairSemaphore, who: str) -> None:
        async with turns.turn(who):
            await world.sleep(1.0)
            order.append(who)

    async def main() -> None:
        turns = FairSemaphore(world, "places", 1, 1)
        tasks = [work(turns, "hog") for _ in range(20)]
        await world.all_of([*tasks, work(turns, "ada"), work(turns, "bob")])

    world.run(main())
    assert sorted(order[:4]) == ["ada", "bob", "hog", "hog"]


def test_nobody_takes_all_places() -> None:
    world, waited = VirtualWorld(), list[float]()

    async def hog(turns: FairSemaphore) -> None:
        async with turns.turn("hog"):
            await world.sleep(100.0)

    async def ada(turns: FairSemaphore) -> None:
        async with turns.turn("ada"):
            waited.append(world.now())

    async def main() -> None:
        turns = FairSemaphore(world, "places", 1, 2)
        await world.all_of([*(hog(turns) for _ in range(5)), ada(turns)])

    world.run(main())
    assert waited == [0.0]


def test_who_gives_up_waiting_leaves_no_gap() -> None:
    async def main() -> list[str]:
        turns, done = FairSemaphore(RealWorld(), "places", 1, 1, waiting=1), list[str]()

        async def work(who: str) -> None:
            async with turns.turn(who):
                await asyncio.sleep(0)
                done.append(who)

        async with turns.turn("first"):
            leaver, ada = asyncio.create_task(work("leaver")), asyncio.create_task(work("ada"))
            await asyncio.sleep(0)
            with pytest.raises(OverLimit):
                await work("ada")
            leaver.cancel()
            await asyncio.sleep(0)
        await asyncio.wait_for(ada, 10)
        await asyncio.wait_for(work("leaver"), 10)
        return done

    assert asyncio.run(main()) == ["ada", "leaver"]


def test_a_bucket_refuses_until_enough_has_leaked() -> None:
    world = VirtualWorld()

    async def main() -> None:
        bucket = LeakyBucket(world, rate=0.5, burst=30.0)
        bucket.charge("ada", 31.0)
        with pytest.raises(OverLimit, match="30 checks, as much as allowed; send it again in 3 s"):
            bucket.check("ada", "checks")
        bucket.check("bob", "checks")
        await world.sleep(3.0)
        bucket.check("ada", "checks")

    world.run(main())


def test_a_bucket_slows_down_who_is_faster() -> None:
    world = VirtualWorld()

    async def main() -> float:
        bucket = LeakyBucket(world, rate=10.0, burst=20.0)
        for _ in range(5):
            await bucket.wait("hog")
            bucket.charge("hog", 10.0)
        assert bucket.delay("ada") == 0.0
        bucket.charge("hog", 1000.0)
        with pytest.raises(OverLimit, match="too much"):
            await bucket.wait("hog")
        return world.now()

    assert world.run(main()) == pytest.approx(2.0)


def test_there_is_contention_while_somebody_else_asks() -> None:
    world = VirtualWorld()

    async def main() -> list[bool]:
        company = Contention(world)
        found = [company.joins("ada"), company.joins("ada"), company.joins("bob")]
        found.append(company.joins("ada"))
        await world.sleep(2.0)
        return [*found, company.joins("ada"), company.joins("ada")]

    assert world.run(main()) == [False, False, True, True, False, False]


class Line(Accepted):
    """A connection of a peer."""

    def __init__(self, peer: str, *, idle: bool = False, held: bool = False) -> None:
        self.peer = Peer(peer)
        self.handshake = None
        self.gone = False
        self._idle, self._held = idle, held

    @property
    def idle(self) -> bool:
        return self._idle

    @property
    def held(self) -> bool:
        return self._held

    def give_way(self) -> None:
        self.gone = True

    def shut_down(self) -> None: ...


def test_a_connection_without_a_token_gives_way_and_others_stay() -> None:
    connections = Connections(each=3, total=5)
    lines = [Line("uid 1") for _ in range(3)]
    assert all(connections.open(line) for line in lines)
    connections.prove(lines[0], "user ada")
    for _ in range(2):
        assert connections.open(Line("uid 1"))
    assert [line.gone for line in lines] == [False, True, False]
    assert connections.open(Line("uid 3"))
    assert connections.open(Line("uid 4"))  # the peer with the most gives way
    assert lines[2].gone and not lines[0].gone
    assert len(connections) == 5


def test_users_behind_one_address_do_not_lock_each_other_out() -> None:
    connections = Connections(each=2, total=100)
    hog = [Line("address 10.0.0.1", held=number == 1) for number in range(3)]
    for number, line in enumerate(hog):
        assert connections.open(line)
        connections.prove(line, "user hog")
        assert [each.gone for each in hog] == [False, number == 2, False]
    ada = Line("address 10.0.0.1")
    assert connections.open(ada)
    connections.prove(ada, "user ada")
    busy = Line("address 10.0.0.1")
    assert connections.open(busy)
    with pytest.raises(OverLimit, match="user hog has 2 connections"):
        connections.prove(busy, "user hog")
    assert not ada.gone


def test_the_kernel_says_whose_socket_the_other_end_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        uids = []
        for uid in {os.geteuid(), 65534 if os.geteuid() == 0 else os.geteuid()}:
            child = os.fork()
            if child == 0:
                os.setuid(uid)
                line = socket.socket()
                line.connect(server.getsockname())
                line.recv(1)
                os._exit(0)
            accepted, _ = server.accept()
            uids.append((loopback_uid(accepted), uid))
            accepted.close()
            os.waitpid(child, 0)
    assert all(found == expected for found, expected in uids)


def test_a_peer_that_has_gone_is_nobody() -> None:
    """For the kernel, a closed socket belongs to root."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        line.close()
        with accepted:
            assert loopback_uid(accepted) is None
        assert peer_of(accepted) == UNKNOWN


def test_a_unix_socket_says_who_is_there(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as line:
        server.bind(str(tmp_path / "s"))
        server.listen()
        line.connect(str(tmp_path / "s"))
        accepted, _ = server.accept()
        with accepted:
            found = peer_of(accepted)
    assert (found.uid, found.unix) == (os.geteuid(), True)
