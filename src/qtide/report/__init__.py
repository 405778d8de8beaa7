"""Tables, timelines and pages: the ledger as people look at it."""
