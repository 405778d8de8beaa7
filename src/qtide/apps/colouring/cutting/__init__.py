"""Circuit cutting: QAOA for clustered graphs on devices with fewer qubits than vertices."""
