"""What qtide is for, shown on one computer in two minutes, with real work."""
