"""Circuit cutting: QAOA of clustered graphs on devices with fewer qubits than vertices."""
