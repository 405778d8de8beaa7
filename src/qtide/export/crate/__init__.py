"""A run as a Workflow Run RO-Crate: what was run on what, when, by whom, and what came out."""
