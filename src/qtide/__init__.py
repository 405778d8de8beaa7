"""qtide shares scarce quantum processors among the jobs of an HPC cluster."""
