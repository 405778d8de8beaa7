"""Runs: a program on a site under a strategy, in a folder that can be resumed."""
