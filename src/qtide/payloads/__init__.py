"""Payloads: what a QPU is given, what it answers, and how both travel between processes."""
