"""Admission to the service by Slurm: a job that holds a slot may use a virtual QPU."""
