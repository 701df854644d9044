"""Where jobs are kept: one contract, `Store`, and an implementation for each backend."""

from windlass.store.open_store import store_at
from windlass.store.protocol import Capabilities, Schema, Store, Transaction
from windlass.store.queries import StoreQueries
from windlass.store.spaces import (
    store_of_job,
    store_of_queue,
    store_of_space,
    stores_of_jobs,
)

__all__ = [
    "Capabilities",
    "Schema",
    "Store",
    "StoreQueries",
    "Transaction",
    "store_at",
    "store_of_job",
    "store_of_queue",
    "store_of_space",
    "stores_of_jobs",
]
