"""Formats of payloads and answers."""
