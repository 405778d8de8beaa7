"""Tables, timelines and pages, built from the ledger alone."""
