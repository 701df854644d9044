"""Several whole stores, the spaces, chosen by queue."""

from windlass.store.spaces.store import (
    SpacedStore,
    store_of_job,
    store_of_queue,
    store_of_space,
    stores_of_jobs,
)

__all__ = ["SpacedStore", "store_of_job", "store_of_queue", "store_of_space", "stores_of_jobs"]
