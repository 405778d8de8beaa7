"""Admission to the service by Slurm: who holds a slot there may use a virtual QPU here."""
