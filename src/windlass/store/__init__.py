"""Where jobs are kept: one contract, `Store`, and an implementation for each backend."""

from windlass.store.protocol import Capabilities, Schema, Store
from windlass.store.urls import store_at

__all__ = ["Capabilities", "Schema", "Store", "store_at"]
