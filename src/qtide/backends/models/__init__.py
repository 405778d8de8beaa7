"""Models of a site: its parameters, its batch scheduler, its workloads."""
