"""Limits on what is read at all, whatever a device takes: no payload may exhaust its reader."""

MOST_BYTES = 16 * 2**20
"""Of an encoded payload or answer."""

MOST_CIRCUITS = 10_000
"""In a batch."""

MOST_INSTRUCTIONS = 100_000
"""In a circuit; instructions in branches are counted by the device."""

MOST_QUBITS = 1_000
"""In a circuit; the limit for its classical bits is the same."""

MOST_VARIABLES = 100_000
"""In a binary quadratic model."""

MOST_TEXT = 1_000
"""Characters in a name or a key."""

READING_SECONDS = 10.0
"""That a vendor's reader may take to decode circuits."""

READING_BYTES = 2**29
"""Memory that a vendor's reader may take in addition to what its process already has."""
