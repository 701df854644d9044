"""Where jobs are kept: one contract, `Store`, and an implementation for each backend."""

from windlass.store.protocol import Capabilities, Store
from windlass.store.urls import store_at

__all__ = ["Capabilities", "Store", "store_at"]
