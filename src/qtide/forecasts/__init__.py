"""What is expected: waits, starts, durations."""
