"""Policies: in which order the waiting tasks of a device are run."""
