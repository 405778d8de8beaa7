"""Limits of what is read at all, whatever a device takes: no encoded may exhaust who opens it."""

MOST_BYTES = 16 * 2**20
"""Of a encoded."""

MOST_CIRCUITS = 10_000
"""In a batch."""

MOST_INSTRUCTIONS = 100_000
"""In a circuit; those in branches are for the device to count."""

MOST_QUBITS = 1_000
"""In a circuit; as many classical bits in each of its registers."""

MOST_VARIABLES = 100_000
"""In a binary quadratic model."""

MOST_TEXT = 1_000
"""Characters in a name or a key."""

READING_SECONDS = 10.0
"""For a vendor's reader to make circuits of bytes."""

READING_BYTES = 2**29
"""Memory that a vendor's reader may take in addition to what it finds."""
