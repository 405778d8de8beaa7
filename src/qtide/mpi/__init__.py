"""MPI for single processes: each starts as its own MPI world, and worlds are joined later."""
