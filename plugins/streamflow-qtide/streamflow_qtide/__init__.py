"""Quantum locations for StreamFlow."""
