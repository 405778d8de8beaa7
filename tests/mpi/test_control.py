"""The root's end of the control connections: who is admitted, who is rejected, who is missed."""

import json
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qtide.mpi.control import CALLERS, ControlServer, MemberClient, NodesLost
from qtide.mpi.control_line import ControlLine
from tests.backends.slurm.stage import until


@pytest.fixture
def server() -> Iterator[ControlServer]:
    served = ControlServer("127.0.0.1")
    yield served
    served.close(0)


def call(server: ControlServer, **message: object) -> ControlLine:
    line = ControlLine(socket.create_connection(server.address, timeout=5))
    line.send(message)
    return line


def key_of(invitation: str) -> str:
    return invitation.rsplit(maxsplit=1)[-1]


def admitted(server: ControlServer, *members: int) -> list[ControlLine]:
    return admitted_beside(server, None, *members)


def admitted_beside(server: ControlServer, known: int | None, *members: int) -> list[ControlLine]:
    keys = {member: key_of(server.expect(member, 1, lambda: None)) for member in members}
    lines = [call(server, hello=each, generation=1, key=key) for each, key in keys.items()]
    assert until(lambda: server.connected == {*members, known} - {None}, 5)
    return lines


def test_a_newcomer_of_a_growth_that_was_given_up_is_rejected(server: ControlServer) -> None:
    arrived: list[int] = []
    key = key_of(server.expect(1, 1, lambda: arrived.append(1)))
    server.dismiss(1)
    late = call(server, hello=1, generation=1, key=key)
    assert list(late.messages()) == []
    server.expect(2, 2, lambda: arrived.append(2))
    stale = call(server, hello=2, generation=1, key=key)
    assert list(stale.messages()) == []
    stranger = call(server, hello=2, generation=2, key="guessed")
    assert list(stranger.messages()) == []
    assert (arrived, server.rejected) == ([], 3)


def test_an_invitation_is_good_once(server: ControlServer) -> None:
    arrived: list[int] = []
    key = key_of(server.expect(1, 1, lambda: arrived.append(1)))
    first = call(server, hello=1, generation=1, key=key)
    assert until(lambda: server.connected == {1}, 5)
    again = call(server, hello=1, generation=1, key=key)
    assert list(again.messages()) == []
    assert (arrived, server.rejected) == ([1], 1)
    first.close()


def test_a_member_that_is_gone_is_told_to_the_others_and_fails_the_change(
    server: ControlServer,
) -> None:
    first, second = admitted(server, 1, 2)
    server.report(7, success=True)
    first.send({"change": 7, "success": True})
    second.close()
    assert not server.decide(7, [0, 1, 2], limit=5)
    messages = first.messages()
    assert sorted(map(str, (next(messages), next(messages)))) == sorted(
        map(str, ({"lost": 2}, {"change": 7, "success": False}))
    )


def test_a_change_is_made_once_all_have_reported_success(server: ControlServer) -> None:
    lines = admitted(server, 1, 2)
    server.report(3, success=True)
    for line in lines:
        line.send({"change": 3, "success": True})
    assert server.decide(3, [0, 1, 2], limit=5)
    assert server.verdict(3)
    assert [next(line.messages()) for line in lines] == 2 * [{"change": 3, "success": True}]


def test_one_failed_share_gives_the_change_up_before_the_others_report(
    server: ControlServer,
) -> None:
    lines = admitted(server, 1, 2)
    lines[0].send({"change": 3, "success": False})
    assert not server.decide(3, [0, 1, 2], limit=5)


def test_a_change_nobody_reports_on_is_given_up_after_its_limit(server: ControlServer) -> None:
    lines = admitted(server, 1)
    assert not server.decide(3, [0, 1], limit=0.05)
    lines[0].close()


def test_the_first_exception_of_a_member_reaches_all(server: ControlServer) -> None:
    first, second = admitted(server, 1, 2)
    first.send({"failed": "one"})
    assert next(second.messages()) == {"failed": "one"}
    second.send({"failed": "two"})
    second.send({"leave": True})
    second.close()
    assert until(lambda: server.connected == {1}, 5)
    assert server.failure == "one"


@pytest.mark.parametrize("leaves_by_itself", [True, False])
def test_a_member_that_leaves_is_no_loss(server: ControlServer, leaves_by_itself: bool) -> None:
    (line,) = admitted(server, 1)
    if leaves_by_itself:
        line.send({"leave": True})
    else:
        server.let_leave(1)
    line.close()
    assert until(lambda: not server.connected, 5)
    assert server.lost == set()


def test_who_leaves_is_lost_until_the_change_is_made(server: ControlServer) -> None:
    (line,) = admitted(server, 1)
    server.report(3, success=True)
    line.close()
    assert not server.decide(3, [0, 1], leaving=[1], limit=5)
    assert server.lost == {1}


def test_a_member_whose_process_ends_just_when_it_has_left_is_not_lost(
    server: ControlServer,
) -> None:
    for member in range(1, 21):
        (line,) = admitted(server, member)
        line.send({"leave": True})
        server.ended(member)
        assert until(lambda: not server.connected, 5)
    server.ended(99)  # never came
    assert server.lost == {99}


def test_a_loss_is_raised_when_all_others_know_of_it(server: ControlServer) -> None:
    """What serves a request of a member only looks: the member's notice comes after the request."""
    first, second = admitted(server, 1, 2)
    second.close()
    assert until(lambda: server.lost == {2}, 5)
    with pytest.raises(NodesLost):
        server.check([0, 1, 2])
    raised = threading.Event()

    def watch() -> None:
        with suppress(NodesLost):
            server.watch([0, 1, 2])
        raised.set()

    threading.Thread(target=watch).start()
    assert not raised.wait(0.05)
    first.send({"noticed": 2})
    assert raised.wait(5)


def test_a_member_notices_a_loss_and_waits_until_all_have(server: ControlServer) -> None:
    client = MemberClient(server.expect(1, 1, lambda: None), outlives=True)
    other, lost = admitted_beside(server, 1, 2, 3)
    lost.close()
    assert until(lambda: client.lost == {3}, 5)
    raised = threading.Event()

    def watch() -> None:
        with suppress(NodesLost):
            client.watch([0, 1, 2, 3])
        raised.set()

    threading.Thread(target=watch).start()
    assert not raised.wait(0.05)
    other.send({"noticed": 3})
    assert raised.wait(5)


def test_a_loss_is_settled_when_all_have_noticed_it_or_are_lost(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third, fourth = admitted(server, 1, 2, 3, 4)
    fourth.close()
    assert until(lambda: server.lost == {4}, 5)
    first.send({"noticed": 4})
    second.send({"leave": True})
    second.close()
    monkeypatch.setattr("qtide.mpi.control.NOTICE_LIMIT", 0.2)
    server.settle()
    assert server.lost == {3, 4}  # it did not answer
    assert [next(third.messages()), *third.messages()] == [{"lost": 4}]
    first.send({"noticed": 3})
    server.settle()
    assert server.lost == {3, 4}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=5,
)
HELLOS = st.fixed_dictionaries(
    {}, optional={"hello": VALUES, "generation": VALUES, "key": VALUES, "change": VALUES}
)
HOSTILE = st.binary(max_size=200) | st.builds(
    lambda value: json.dumps(value).encode(), VALUES | HELLOS
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(HOSTILE)
def test_whatever_a_stranger_sends_is_rejected_and_members_are_still_served(
    server: ControlServer, line: bytes
) -> None:
    rejected = server.rejected
    with socket.create_connection(server.address, timeout=5) as stranger:
        stranger.sendall(line + b"\n")
        stranger.shutdown(socket.SHUT_WR)
        assert stranger.recv(1) == b""
    assert server.rejected == rejected + 1
    key = key_of(server.expect(1, 1, lambda: None))
    member = call(server, hello=1, generation=1, key=key)
    assert until(lambda: server.connected == {1}, 5)
    member.send({"leave": True})
    member.close()
    assert until(lambda: not server.connected, 5)


def test_brackets_in_brackets_are_rejected(server: ControlServer) -> None:
    with socket.create_connection(server.address, timeout=5) as stranger:
        stranger.sendall(b"[" * 100_000 + b"\n")
        assert stranger.recv(1) == b""
    assert server.rejected == 1


def test_a_line_without_an_end_is_cut_off_before_it_is_kept(server: ControlServer) -> None:
    with socket.create_connection(server.address, timeout=5) as stranger:
        with suppress(OSError):
            for _ in range(1000):
                stranger.sendall(b"x" * 65536)
        assert until(lambda: server.rejected == 1, 5)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2**21  # 2 GB in kB


def test_idle_callers_give_way_and_have_a_bounded_number_of_threads(server: ControlServer) -> None:
    before = threading.active_count()
    idle = [socket.create_connection(server.address, timeout=5) for _ in range(5 * CALLERS)]
    assert until(lambda: server.rejected >= 4 * CALLERS, 10)
    assert threading.active_count() <= before + CALLERS + 1
    (line,) = admitted(server, 1)
    line.close()
    for each in idle:
        each.close()


def test_newcomers_are_admitted_again_after_descriptors_ran_out(server: ControlServer) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    caller = socket.socket()  # while there are descriptors
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used - 1, hard))
    try:
        caller.connect(server.address)
        time.sleep(0.2)  # the server cannot accept it
        assert not server.connected
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    caller.close()
    (line,) = admitted(server, 1)
    line.close()
