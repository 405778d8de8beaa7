"""What runs on a node before a job's task: it fetches the token of the vQPU service."""
