"""Tables, timelines and pages: the ledger for people to look at."""
