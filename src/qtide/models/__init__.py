"""What a site is like: its parameters, its batch scheduler, and the jobs that it gets."""
