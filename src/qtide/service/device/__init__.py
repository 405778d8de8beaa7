"""One device of the service: its queue, which task is next, and what becomes of each."""
