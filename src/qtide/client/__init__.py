"""Clients of the vQPU service: plain Python, dimod and Qiskit."""
