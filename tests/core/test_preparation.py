"""What nodes import first, learnt from tasks, and how long a start should take."""

from qtide.core.job import FAILURES, MOST, Preparation


def test_modules_are_kept_in_the_order_in_which_tasks_imported_them() -> None:
    preparation = Preparation()
    preparation.learn({"program": 0.1, "numpy": 0.4})
    preparation.learn({"numpy": 0.3, "dimod": 0.5})
    assert preparation.modules == ["program", "numpy", "dimod"]


def test_a_start_takes_as_long_as_the_last_and_what_was_learnt_since() -> None:
    preparation = Preparation()
    assert preparation.seconds is None
    preparation.started(0.25)
    preparation.learn({"numpy": 0.5})
    preparation.learn({"numpy": 0.5})  # on another node
    assert preparation.seconds == 0.75
    preparation.started(0.625)
    assert preparation.seconds == 0.625


def test_what_killed_an_agent_is_prepared_again_only_after_a_task_imported_it() -> None:
    preparation = Preparation({"numpy": 0.5})
    preparation.failed()
    preparation.failed()  # the node beside it
    assert preparation.modules == []
    preparation.learn({"numpy": 0.5})
    assert preparation.modules == ["numpy"]


def test_what_kills_again_and_again_is_given_up() -> None:
    preparation = Preparation()
    for _ in range(FAILURES):
        preparation.learn({"deadly": 0.5})
        preparation.failed()
    preparation.learn({"deadly": 0.5})
    assert preparation.modules == []


def test_the_memory_is_bounded() -> None:
    preparation = Preparation()
    for n in range(MOST + 10):
        preparation.learn({f"made_up_{n}": 0.0})
    assert len(preparation.modules) == MOST


def test_json_and_clocks() -> None:
    preparation = Preparation({"numpy": 0.5}, 2.0)
    again = Preparation.from_json(preparation.scaled(4).as_json())
    assert again.as_json() == {"modules": {"numpy": 2.0}, "seconds": 8.0}
    assert again.elsewhere().as_json() == {"modules": {"numpy": 2.0}, "seconds": None}
