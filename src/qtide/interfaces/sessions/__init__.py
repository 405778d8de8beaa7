"""Sessions: a synchronous script whose calls run on nodes and on the QPU."""
