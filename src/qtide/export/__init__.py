"""Runs for others: as workflows that other engines run, and as records that others read."""
