"""What tasks need and nodes have: words, shares, and the account of a node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.core.errors import NotEnoughNodes, UsageError
from qtide.core.resources import (
    WHOLE,
    BillingWeights,
    Needs,
    NodeKind,
    NodePart,
    Room,
    nodes_filled,
    size_in_bytes,
)
from tests.interfaces.cli.inside import refused

kinds = st.builds(
    NodeKind,
    cores=st.integers(1, 9),
    gpus=st.integers(0, 4),
    memory=st.none() | st.integers(1, 10),
    sockets=st.integers(1, 3),
)
parts = st.builds(
    Needs, cores=st.integers(1, 5), gpus=st.integers(0, 2), memory=st.none() | st.integers(1, 6)
)


@pytest.mark.parametrize(
    ("word", "needs"),
    [
        ("cores=4", Needs(4)),
        ("cores=4, gpus=1, memory=16GB", Needs(4, 1, 16 * 10**9)),
        ("gpus=2", Needs(1, 2)),
        ("memory=1.5 GiB", Needs(1, 0, 3 * 2**29)),
        ("kind=gpu", Needs(kind="gpu")),
    ],
)
def test_needs_in_words(word: str, needs: Needs) -> None:
    assert Needs.parse(word) == needs
    assert needs.whole == (needs == Needs(kind="gpu"))


@pytest.mark.parametrize(
    "word", ["", "cores", "cores=0", "cores=-1", "cores=a", "nodes=2", "memory=4 potatoes", "gpus="]
)
def test_needs_that_are_not_said_right_get_one_sentence(word: str) -> None:
    with pytest.raises(UsageError, match=r"^give needs as in cores=4,gpus=1,memory=16GB: .+"):
        Needs.parse(word)


@pytest.mark.parametrize("cores", [0, True, 1.5, "2"])
def test_cores_are_a_number(cores: int) -> None:
    with pytest.raises(ValueError, match="cores is a number from 1 on"):
        Needs.of(cores)


def test_kinds_in_words() -> None:
    assert NodeKind.parse("gpu:2,cores=8,gpus=4,memory=64 GB") == NodeKind(
        "gpu", 2, 8, 4, 64 * 10**9
    )
    assert NodeKind.parse("cpu:1") == NodeKind("cpu")
    assert NodeKind.parse("cpu:3,gpus=1", NodeKind(cores=8)) == NodeKind("cpu", 3, 8, 1)
    for word in (
        "gpu",
        "gpu:0",
        "gpu:a",
        "g p:1",
        "gpu:1,cores=0",
        "gpu:1,colour=4",
        ":1",
        "g:1,cores=1,cores=2",
    ):
        with pytest.raises(UsageError, match="kind"):
            NodeKind.parse(word)


def test_what_never_fits_is_refused_with_what_a_node_has() -> None:
    kind = NodeKind(cores=8, gpus=0, memory=16 * 10**9)
    sentence = r"^f needs 1 core, 1 GPU of a node, but a node has 8 cores, no GPU, 16 GB; ask for "
    with pytest.raises(NotEnoughNodes, match=sentence):
        kind.refuse_if_impossible(Needs(1, 1), "f")
    kind.refuse_if_impossible(Needs(8, 0, 16 * 10**9), "f")
    kind.refuse_if_impossible(WHOLE, "f")


@given(kinds, st.lists(st.one_of(parts, st.integers(0, 20)), max_size=40))
def test_no_core_gpu_or_byte_is_given_twice(kind: NodeKind, steps: list[Needs | int]) -> None:
    """Needs take a part if they fit; a number returns one of the parts."""
    room, taken = Room(kind), list[NodePart]()
    for step in steps:
        if isinstance(step, int):
            if taken:
                room.give_back(taken.pop(step % len(taken)))
            continue
        if room.fits(step):
            slot = room.take(step)
            assert (len(slot.cores), len(slot.gpus)) == (step.cores, step.gpus)
            taken.append(slot)
        cores = [core for slot in taken for core in slot.cores]
        gpus = [gpu for slot in taken for gpu in slot.gpus]
        assert len(set(cores)) == len(cores) <= kind.cores
        assert len(set(gpus)) == len(gpus) <= kind.gpus
        assert kind.memory is None or sum(slot.memory or 0 for slot in taken) <= kind.memory
        assert room.tasks == len(taken)
    for slot in taken:
        room.give_back(slot)
    assert (room.cores, room.gpus) == (list(range(kind.cores)), list(range(kind.gpus)))
    assert room.memory == kind.memory


def test_cores_of_one_socket_stay_together() -> None:
    room = Room(NodeKind(cores=8, sockets=2))
    assert room.take(Needs(3)).cores == (0, 1, 2)
    assert room.take(Needs(3)).cores == (4, 5, 6)
    assert room.take(Needs(1)).cores == (3,)
    assert Room(NodeKind(cores=8, sockets=2)).take(Needs(5)).cores == (0, 1, 2, 3, 4)


@given(st.lists(st.integers(1, 8), max_size=60), st.integers(1, 40))
def test_nodes_filled_is_enough_and_at_most_twice_what_is_needed(
    cores: list[int], most: int
) -> None:
    found = nodes_filled([each / 8 for each in cores], most)
    least = -(-sum(cores) // 8)
    assert min(most, least) <= found <= min(most, 2 * least)


def test_sizes_in_words() -> None:
    assert [size_in_bytes(each) for each in ("1 kB", "2MiB", 7)] == [1000, 2**21, 7]


@pytest.mark.parametrize(
    ("word", "rate"),
    [
        ("CPU=1.0,Mem=0.25G,GRES/gpu=2.0", 8 + 0.25 * 64 + 2.0 * 4),
        ("cpu=0.5", 4.0),
        ("Mem=0.001", 0.001 * 64 * 1024),  # by the mebibyte, as Slurm has it
        ("GRES/gpu:a100=3,node=10", 22.0),
    ],
)
def test_a_node_is_charged_by_the_site_s_weights(word: str, rate: float) -> None:
    kind = NodeKind("gpu", 2, 8, 4, 64 * 2**30, weights=BillingWeights.parse(word))
    assert kind.rate == pytest.approx(rate)


def test_weights_that_are_not_said_right_get_one_sentence() -> None:
    for word in ("CPU", "CPU=x", "License/matlab=3", "Mem=1.5X"):
        with pytest.raises(UsageError, match=r"billing weights are said as in CPU=1,GRES/gpu=4"):
            BillingWeights.parse(word)
    assert BillingWeights.parse("CPU=1,License/matlab=3", ignore_others=True).cores == 1.0


def test_parts_and_kinds_are_charged_in_proportion() -> None:
    weights = BillingWeights.parse("CPU=1,GRES/gpu=4", highest=True)
    cpu, gpu = (NodeKind(f"k{n}", 2, 8, 4 * n, weights=weights) for n in (0, 1))
    assert (cpu.rate, gpu.rate, gpu.charge(cpu)) == (8.0, 16.0, 2.0)
    part = gpu.divided(Needs(2, 1))
    assert (part.rate, part.fraction, part.charge(part)) == (4.0, 0.25, 0.25)
    assert gpu.part_rate(NodePart((0, 1), (3,))) == 4.0
    plain = NodeKind("plain", 2, 8)
    assert (plain.charge(plain), plain.divided(Needs(2)).charge(plain), plain.rate) == (1, 0.25, 0)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("simulated:1000000000", "the number of nodes is from 1 to 100,000, not 1,000,000,000"),
        ("local:100001", "the number of nodes is from 1 to 100,000, not 100,001"),
        ("local --cores 0", "the number of cores of a node is from 1 to 10,000, not 0"),
        ("simulated:2 --cores 0", "the number of cores of a node is from 1 to 10,000, not 0"),
        ("local --gpus -1", "the number of GPUs of a node is from 0 to 10,000, not -1"),
        (
            "simulated --kind a:2,cores=20000",
            "a node of kind a is from 1 to 10,000, not 20,000",
        ),
    ],
)
def test_sizes_that_no_cluster_has_are_refused(words: str, sentence: str) -> None:
    assert sentence in refused("run", "synthetic", "--cluster", *words.split())
