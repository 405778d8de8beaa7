"""Devices, which compute the answers to payloads, each in its own process."""
