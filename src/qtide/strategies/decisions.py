"""Decisions: what a job decided about its nodes, and on which figures, as notes in its ledger."""

from __future__ import annotations

from math import isfinite

from qtide.clusters.cluster import Node
from qtide.ledger.ledger import Ledger
from qtide.strategies.trade import Verdict


class Decisions:
    """Writes each change of mind once."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: dict[str, bool] = {}

    def forget(self) -> None:
        """A new gap begins: everything is decided anew."""
        self._kept.clear()

    def over_a_gap(self, node: Node, verdict: Verdict, **basis: float) -> None:
        """A node is kept over a gap or given back."""
        if self._kept.get(node.name) == verdict.keep:
            return
        self._kept[node.name] = verdict.keep
        costs = {"idling": verdict.idling, "returning": verdict.returning}
        if isfinite(verdict.missing):
            costs["missing"] = verdict.missing
        what = "kept" if verdict.keep else "gave back"
        self._ledger.note(what, f"node/{node.name}", gap=verdict.gap, **costs, **basis)

    def ask_ahead(self, nodes: int, **basis: float) -> None:
        """Nodes are asked for before the phase that needs them."""
        self._ledger.note("asked ahead", "nodes", nodes=nodes, **basis)
