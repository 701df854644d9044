"""Where jobs are kept: one contract, `Store`, and an implementation for each backend."""

from windlass.store.done import DoneBefore
from windlass.store.protocol import Capabilities, Schema, Store, Transaction
from windlass.store.urls import store_at

__all__ = ["Capabilities", "DoneBefore", "Schema", "Store", "Transaction", "store_at"]
