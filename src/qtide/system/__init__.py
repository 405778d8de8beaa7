"""What the operating system gives: files, locks, processes, pipes. Knows nothing of qtide."""
