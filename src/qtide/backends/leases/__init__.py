"""Leases: the right of a job to use a QPU, emulated by the run or at the service."""
