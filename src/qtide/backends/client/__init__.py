"""The client of the vQPU service: plain Python, Qiskit, dimod."""
