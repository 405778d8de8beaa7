"""How people and programs use qtide."""
