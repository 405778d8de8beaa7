"""QAOA for independent sets, simulated without a transpiler or run as circuits on a device."""
