"""Forecasts: what is expected of waits, starts, durations and of what comes next.

Whoever has to decide asks here; whoever measures tells it here. Nothing else predicts anything.
"""
