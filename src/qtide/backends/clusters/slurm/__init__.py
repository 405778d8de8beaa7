"""A stock Slurm as a cluster: each request for nodes becomes a companion job."""
