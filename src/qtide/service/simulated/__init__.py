"""What takes the place of disk and device processes when the service runs in virtual time."""
