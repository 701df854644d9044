"""Owns errors of stores."""

from __future__ import annotations

from windlass.core.errors.base import WindlassError


class StoreError(WindlassError):
    """The store refused or failed.

    Remedy:
        See the subclass; the message says what the store refused.
    """


class StoreUnavailable(StoreError):
    """The store cannot be reached or written now; repeat the call. Nothing was written.

    Remedy:
        Repeat the call later. `windlass doctor` says whether the store can be reached.
    """


class StoreBusy(StoreUnavailable):
    """Another transaction holds the rows for longer than the timeout. Nothing was lost.

    Remedy:
        Repeat the call. If it happens often, end the transaction that holds the rows; the
        message names it where that is known.
    """


class StoreRefused(StoreUnavailable):
    """The store refuses the connection, or is not where the URL says; waiting does not help.

    Remedy:
        Correct the URL, the password or the rights, or start the server that the URL names.
    """


class WriteUncertain(StoreUnavailable):
    """The store did not answer: the write may have happened, may happen yet, or not at all.

    Remedy:
        Repeat the call; actions that Windlass offers can be repeated safely. For an
        enqueue, see `EnqueueUncertain`.
    """


class QueueFull(StoreError):
    """A bounded queue has no room for the enqueued jobs; `size` is None if memory bounds it.

    Remedy:
        Let workers catch up, enqueue less at a time, or raise `WINDLASS_QUEUE_SIZE` (memory
        store) or the memory of Redis.
    """

    def __init__(self, size: int | None, message: str) -> None:
        super().__init__(size, message)
        self.size = size
        self.message = message

    def __str__(self) -> str:
        waiting = "" if self.size is None else f" ({self.size:,} jobs are waiting)"
        return f"the queue is full{waiting}: {self.message}"


class StoreForbidden(StoreError):
    """The user of the store lacks a right that this needs.

    A worker keeps the outcomes that it may not write, each in its slot, until the right is given.

    Remedy:
        Give the user the rights that docs/postgresql.md or docs/redis.md list; on PostgreSQL
        repeat the grants after every migration.
    """


class SchemaMismatch(StoreError):
    """The store's schema and this release of Windlass do not fit.

    Remedy:
        Run `windlass migrate` with the newer release, or upgrade the older one; the message
        says which.
    """
