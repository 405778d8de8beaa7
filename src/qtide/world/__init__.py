"""Clock, tasks and timeouts, in real or in virtual time, behind one interface."""

from qtide.world.world import Future, World

__all__ = ["Future", "World"]
