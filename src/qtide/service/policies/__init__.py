"""Policies, which determine the order of a device's waiting tasks."""
