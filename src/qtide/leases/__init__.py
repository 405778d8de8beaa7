"""Leases of QPUs: exclusive, or as virtual QPUs of a shared device."""
