"""Experiments: whole measurements, from the plan to the page."""
