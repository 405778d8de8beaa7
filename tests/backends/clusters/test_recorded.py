"""How long tasks take in virtual time that pretend nothing: as long as they worked before."""

from qtide.backends.clusters.virtual_tasks import Recorded
from qtide.core.ledger import Interval


def busy(start: float, end: float, what: str = "busy", label: str = "f") -> Interval:
    return Interval("job", what, "node/n1", start, end, label)  # type: ignore[arg-type]  # one of its words


def test_what_a_task_imported_is_not_its_work() -> None:
    spans = [
        busy(0.0, 1.0, "starting", ""),
        busy(1.0, 4.0),
        busy(1.0, 3.0, "starting"),
        busy(4.0, 5.0),
    ]
    assert Recorded.of(spans, 2.0).calls == {"f": [2.0, 2.0]}
