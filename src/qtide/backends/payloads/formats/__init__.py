"""Formats of payloads and answers, one file each."""
