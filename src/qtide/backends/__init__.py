"""What strategies ask for: clusters that grant nodes, and devices behind leases."""
