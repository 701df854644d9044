"""The in-process store: bounded, gone with the process, and the readable reference for
the others.
"""

from windlass.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]
