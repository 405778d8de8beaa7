"""The vQPU service: one queue in front of each device, many jobs behind it."""
