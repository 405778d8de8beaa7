"""APIs: the ways in which clients speak to the service. Each only translates."""
