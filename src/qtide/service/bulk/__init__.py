"""What is too large for the event loop: it is read and written by processes of their own."""
