"""What was held and what was busy, and when: recorded here, drawn by `report`."""
