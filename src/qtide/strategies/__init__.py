"""Strategies: each decides when a job holds which nodes and which lease."""
