"""Graph colouring: branch and bound over independent sets, which a QPU samples."""
