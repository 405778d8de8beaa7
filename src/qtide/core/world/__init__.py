"""Clock, tasks and timeouts in real or virtual time, behind one interface."""
