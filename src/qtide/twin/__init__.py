"""The twin: a site in virtual time, to predict before one runs, to advise, and to plan."""
