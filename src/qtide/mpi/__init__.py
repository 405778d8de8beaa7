"""MPI for single processes: each begins as a world of its own, and worlds are joined later."""
