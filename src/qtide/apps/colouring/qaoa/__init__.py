"""QAOA for independent sets: simulated without a transpiler, or as circuits for a device."""
