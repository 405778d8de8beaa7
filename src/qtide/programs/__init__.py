"""Programs, their phases, and the journal they are replayed from."""
