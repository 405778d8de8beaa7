"""An application made of durations: any loop of classical and quantum phases, from a TOML file."""

from qtide.apps.synthetic.program import synthetic

__all__ = ["synthetic"]
