"""What IQM's clients and QRMI call, under /api/v1."""
