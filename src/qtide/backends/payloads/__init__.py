"""Payloads and answers of a QPU, and the formats in which they are sent."""
