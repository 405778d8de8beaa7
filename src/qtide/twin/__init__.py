"""The twin: simulates a site in virtual time to predict runs, advise on strategies and plan."""
