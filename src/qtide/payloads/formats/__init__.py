"""Formats: one file for each encoding of payloads or answers."""
