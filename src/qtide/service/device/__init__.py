"""One device of the service: its queue, its workers, and the running of its tasks."""
