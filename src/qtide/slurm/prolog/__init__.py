"""What runs on a node before a job's task: it fetches a token for the vQPU service."""
