"""Clock, tasks and timeouts, in real or in virtual time, behind one interface."""
