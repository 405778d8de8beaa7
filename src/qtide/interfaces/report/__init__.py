"""Tables, timelines and pages, made from the ledger alone."""
