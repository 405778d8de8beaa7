"""Foundations: time, the ledger, values, files, options, plug-ins, errors."""
