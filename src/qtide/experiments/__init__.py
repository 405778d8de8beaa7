"""Complete experiments, from the plan to the report page."""
