"""Sessions: synchronous scripts whose calls run on nodes and QPUs under a strategy."""
