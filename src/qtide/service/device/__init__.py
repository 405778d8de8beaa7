"""One device of the service: its queue, who is next, and what becomes of each task."""
