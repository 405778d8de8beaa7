"""The version of qtide."""

__version__ = "0.1.0"
