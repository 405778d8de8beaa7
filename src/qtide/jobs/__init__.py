"""A job and the values it works on: what every other part may know about a run."""
