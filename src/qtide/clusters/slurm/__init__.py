"""qtide on Slurm: companions that hold nodes, agents on them, and a whole cluster in a box."""
