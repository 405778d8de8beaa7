"""Devices compute the answers to payloads; each runs in a process of its own."""
