"""Leases: a job's right to use a QPU, either emulated by the run or behind the service."""
