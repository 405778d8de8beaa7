"""Strategies decide which nodes and which lease are held when. One short file each."""
