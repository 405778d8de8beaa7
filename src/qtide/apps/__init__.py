"""The reference applications."""
