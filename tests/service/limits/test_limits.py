"""The nouns of the limits, each by itself."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from qtide.core.world.real import RealWorld
from qtide.core.world.virtual import VirtualWorld
from qtide.service.connection import UNKNOWN, Connections, peer_of
from qtide.service.limits import (
    Allowance,
    Budget,
    Contention,
    LoopTurns,
    OverLimit,
    Overloaded,
    Pace,
    Turns,
)


def test_a_budget_is_limited_for_each_and_for_all() -> None:
    budget = Budget("bytes", 10, 15)
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

    async def work(turns: Turns, who: str) -> None:
        async with turns.turn(who):
            await world.sleep(1.0)
            order.append(who)

    async def main() -> None:
        turns = Turns(world, 1, 1)
        tasks = [work(turns, "hog") for _ in range(20)]
        await world.all_of([*tasks, work(turns, "ada"), work(turns, "bob")])

    world.run(main())
    assert sorted(order[:4]) == ["ada", "bob", "hog", "hog"]


def test_nobody_takes_all_places() -> None:
    world, waited = VirtualWorld(), list[float]()

    async def hog(turns: Turns) -> None:
        async with turns.turn("hog"):
            await world.sleep(100.0)

    async def ada(turns: Turns) -> None:
        async with turns.turn("ada"):
            waited.append(world.now())

    async def main() -> None:
        turns = Turns(world, 2, 1)
        await world.all_of([*(hog(turns) for _ in range(5)), ada(turns)])

    world.run(main())
    assert waited == [0.0]


def test_who_gives_up_waiting_leaves_no_gap() -> None:
    async def main() -> list[str]:
        turns, done = Turns(RealWorld(), 1, 1, waiting=1), list[str]()

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


def test_the_event_loop_takes_turns_as_well() -> None:
    async def main() -> list[str]:
        turns, order = LoopTurns(), list[str]()

        async def ask(who: str) -> None:
            await turns.turn(who)
            order.append(who)

        await asyncio.gather(*(ask("hog") for _ in range(10)), ask("ada"))
        return order

    assert "ada" in asyncio.run(main())[:3]


def test_an_allowance_comes_back_with_time() -> None:
    now = [0.0]
    allowance = Allowance("checks", 30.0, lambda: now[0])
    allowance.charge("ada", 31.0)
    with pytest.raises(OverLimit, match="send it again in 3 s") as refused:
        allowance.check("ada")
    allowance.check("bob")
    now[0] += refused.value.retry_after
    allowance.check("ada")


def test_a_pace_slows_down_who_is_faster() -> None:
    world = VirtualWorld()

    async def main() -> float:
        pace = Pace(world, rate=10.0, burst=20.0)
        for _ in range(5):
            await pace.wait("hog")
            pace.charge("hog", 10.0)
        assert pace.delay("ada") == 0.0
        return world.now()

    assert world.run(main()) == pytest.approx(2.0)


def test_company_is_somebody_else_who_asks_now() -> None:
    world = VirtualWorld()

    async def main() -> list[bool]:
        company = Contention(world)
        found = [company.joins("ada"), company.joins("ada"), company.joins("bob")]
        found.append(company.joins("ada"))
        await world.sleep(2.0)
        return [*found, company.joins("ada"), company.joins("ada")]

    assert world.run(main()) == [False, False, True, True, False, False]


class Line:
    """A connection of a peer."""

    def __init__(self, peer: str) -> None:
        self.peer_name = peer
        self.gone = False

    def give_way(self) -> None:
        self.gone = True

    def look(self, now: float) -> None: ...


def test_a_connection_without_a_token_gives_way_and_others_stay() -> None:
    connections = Connections(each=3, total=5)
    lines = [Line("uid 1") for _ in range(3)]
    assert all(connections.open(line) for line in lines)
    connections.prove(lines[0])
    assert connections.open(Line("uid 1"))
    assert [line.gone for line in lines] == [False, True, False]
    proven = [Line("uid 2") for _ in range(2)]
    for line in proven:
        assert connections.open(line)
        connections.prove(line)
    assert connections.open(Line("uid 3"))  # the one with the most gives way
    assert lines[2].gone and not any(line.gone for line in proven)
    assert len(connections) == 5


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
            uids.append((peer_of(accepted).uid, uid))
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
            assert peer_of(accepted).uid is None
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
