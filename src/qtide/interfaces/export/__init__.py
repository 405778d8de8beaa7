"""Runs for others: as CWL workflows and as RO-Crates."""
