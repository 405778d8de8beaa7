"""An application made of durations: any loop of classical and quantum phases, from a TOML file."""
