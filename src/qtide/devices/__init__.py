"""Devices: what computes a payload's answer."""
