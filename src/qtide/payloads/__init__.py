"""Payloads: what a QPU is given and what it answers, and how both travel between processes."""
