"""Where jobs are kept: one contract, `Store`, and an implementation for each backend."""

from windlass.store.protocol import Capabilities, Store

__all__ = ["Capabilities", "Store"]
