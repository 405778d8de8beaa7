"""Exports of runs: as CWL workflows and as RO-Crates."""
