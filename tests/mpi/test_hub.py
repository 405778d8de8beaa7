"""The root's end of the lines: who is taken in, who is turned away, who is missed."""

import socket

from qtide.mpi.control import ControlLine, ControlServer
from tests.backends.slurm.stage import until


def called(hub: ControlServer, **word: object) -> ControlLine:
    line = ControlLine(socket.create_connection(hub.address, timeout=5))
    line.say(word)
    return line


def test_a_newcomer_of_a_growth_that_was_given_up_is_turned_away() -> None:
    hub = ControlServer("127.0.0.1")
    arrived: list[int] = []
    key = hub.expect(1, 1, lambda: arrived.append(1)).split()[-1]
    hub.dismiss(1)
    late = called(hub, hello=1, generation=1, key=key)
    assert list(late.words()) == []
    hub.expect(2, 2, lambda: arrived.append(2))
    stale = called(hub, hello=2, generation=1, key=key)
    assert list(stale.words()) == []
    stranger = called(hub, hello=2, generation=2, key="guessed")
    assert list(stranger.words()) == []
    assert (arrived, hub.turned_away) == ([], 3)
    hub.close(0)


def test_a_member_that_is_gone_is_told_to_the_others_and_fails_the_change() -> None:
    hub = ControlServer("127.0.0.1")
    key = hub.expect(1, 1, lambda: None).split()[-1]
    hub.expect(2, 1, lambda: None)
    first = called(hub, hello=1, generation=1, key=key)
    second = called(hub, hello=2, generation=1, key=key)
    assert until(lambda: len(hub._lines) == 2, 5)
    hub.report(7, well=True)
    first.say({"turn": 7, "well": True})
    second.cut()
    assert not hub.decide(7, [0, 1, 2], limit=5)
    words = first.words()
    assert sorted(map(str, (next(words), next(words)))) == sorted(
        map(str, ({"lost": 2}, {"turn": 7, "well": False}))
    )
    hub.close(0)


def test_a_member_that_leaves_is_no_loss() -> None:
    hub = ControlServer("127.0.0.1")
    key = hub.expect(1, 1, lambda: None).split()[-1]
    line = called(hub, hello=1, generation=1, key=key)
    assert until(lambda: 1 in hub._lines, 5)
    hub.let_go(1)
    line.cut()
    assert until(lambda: 1 not in hub._lines, 5)
    assert hub.lost == set()
    hub.close(0)
