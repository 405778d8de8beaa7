"""A stock Slurm as a cluster: each request for nodes is a companion job."""
