from qtide.core.ledger import Interval
from qtide.interfaces.report.timeline import LONGEST, MOST_NODES, clean, lanes
from tests.core.ledger_samples import two_jobs


def labels(intervals: list[Interval]) -> list[str]:
    return [lane.label for lane in lanes(intervals)]


def test_nodes_then_qpu_then_queue() -> None:
    assert labels(two_jobs()) == ["n1", "n2", "QPU", "queue"]


def test_nodes_are_sorted_as_people_count() -> None:
    names = ["n10", "n9", "n1", "login"]
    assert labels([Interval("a", "held", f"node/{name}", 0, 1) for name in names]) == [
        "login",
        "n1",
        "n9",
        "n10",
    ]


def test_several_slots_have_lanes_of_their_own() -> None:
    slots = [Interval("a", "held", f"vqpu/{i}", 0, 1) for i in range(2)]
    assert labels([*slots, Interval("a", "busy", "qpu/q", 0, 1)]) == ["vQPU 0", "vQPU 1", "QPU"]


def test_several_devices_are_named() -> None:
    assert labels([Interval("a", "busy", f"qpu/{n}", 0, 1) for n in "xy"]) == ["QPU x", "QPU y"]


def test_one_lane_has_the_slot_below_the_device() -> None:
    qpu = lanes(two_jobs())[2]
    assert [(bars.what, bars.job, bars.cover) for bars in qpu.bars] == [
        ("held", "a", [(3, 8)]),
        ("held", "b", [(8, 11)]),
        ("busy", "a", [(4, 8)]),
        ("busy", "b", [(8, 11)]),
    ]


def test_each_waiting_job_has_a_strip() -> None:
    waits = [Interval(job, "wait", "qpu", 0, 5) for job in "ab"]
    (queue,) = lanes([*waits, Interval("a", "wait", "nodes", 4, 6)])
    strips = [(bars.job, bars.cover, bars.top, bars.bottom) for bars in queue.bars]
    assert strips == [("a", [(0, 6)], 0, 0.5), ("b", [(0, 5)], 0.5, 1)]


def test_many_nodes_share_the_height() -> None:
    many = lanes([Interval("a", "held", f"node/{i}", 0, 1) for i in range(500)])
    assert abs(sum(lane.height for lane in many) - MOST_NODES) < 1e-6


def test_labels_are_printable_and_short() -> None:
    assert clean("a\x00\n\ud800") == "a" + 3 * "\N{REPLACEMENT CHARACTER}"
    assert clean("x" * 99) == "x" * (LONGEST - 1) + "…"


def test_nothing_has_no_lanes() -> None:
    assert lanes([]) == []


def test_a_node_that_is_starting_is_not_busy() -> None:
    (node,) = lanes(
        [
            Interval("a", "held", "node/n", 0, 9),
            Interval("a", "busy", "node/n", 1, 5),
            Interval("a", "starting", "node/n", 1, 2),
        ]
    )
    assert [(bars.what, bars.cover) for bars in node.bars] == [
        ("held", [(0, 9)]),
        ("starting", [(1, 2)]),
        ("busy", [(2, 5)]),
    ]
