"""Clusters give allocations of nodes and run tasks on them."""
