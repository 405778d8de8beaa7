"""Formats: one file for each form in which payloads or answers travel."""
