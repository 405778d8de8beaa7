"""What was held and what was busy, from when to when: recorded here, drawn by `report`."""
