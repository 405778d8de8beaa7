"""The vQPU service: one QPU for many jobs, users and programs."""
