"""The in-process store: bounded, gone with the process, the readable reference for the others."""

from windlass.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]
