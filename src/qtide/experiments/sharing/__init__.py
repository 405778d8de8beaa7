"""The sharing experiment: replicas of a hybrid job on one QPU, through the vQPU service."""
