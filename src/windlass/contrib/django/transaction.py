"""Owns how an enqueue goes with Django's transaction: in it, after its commit, or without it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from django.db import connections, transaction

from windlass.app.handle import Handle
from windlass.app.producer import Draft
from windlass.contrib.django.database_urls import is_database
from windlass.observability.logs import get_logger

if TYPE_CHECKING:
    from windlass.contrib.django.project_apps import ProjectApp

Way = Literal["join", "on_commit", "off"]
log = get_logger("windlass.django")


def way_of(app: ProjectApp) -> Way:
    """Return how enqueues go with transactions of the database: as given, else as is possible."""
    if not app.store.capabilities.transactional:
        return "off" if app.options.transaction == "off" else "on_commit"
    if app.options.transaction is not None:
        return app.options.transaction  # type: ignore[return-value]
    is_same = is_database(app.settings.url, app.options.database)
    return "join" if is_same else "on_commit"


class Enqueueing(Protocol):
    """What the caller of an enqueue wants to know of it."""

    def enqueued(self, handle: Handle[Any], *, is_committed: bool) -> None:
        """Record that the job is in the store; after a commit, raise nothing."""
        ...

    def failed(self, error: Exception) -> None:
        """Record that the store did not take the job, after the commit."""
        ...


class AfterCommit:
    """An enqueue that waits for the commit; tests find these among Django's callbacks."""

    def __init__(self, app: ProjectApp, draft: Draft[Any], caller: Enqueueing) -> None:
        self.app = app
        self._draft = draft
        self._caller = caller

    def __call__(self) -> None:
        """Enqueue the job; an error is logged, since raising it would skip later callbacks."""
        try:
            self.enqueue()
        except Exception as error:
            job = self._draft.job
            log.exception("enqueue.failed", kind=job.kind, job_id=str(job.id))
            self._caller.failed(error)

    def enqueue(self) -> None:
        """Enqueue the job.

        Raises:
            StoreError: the store did not take it.
        """
        self._caller.enqueued(self.app.enqueue_draft(self._draft), is_committed=True)


def enqueue(app: ProjectApp, draft: Draft[Any], caller: Enqueueing) -> Handle[Any] | None:
    """Enqueue a job as the current transaction wants it, and tell the caller once it is committed.

    Returns: the handle; None if the job waits for the commit.
    """
    database = app.options.database
    way = way_of(app)
    if way == "off" or not _is_in_transaction(database):
        handle = app.enqueue_draft(draft)
    elif way == "join":
        handle = app.enqueue_many([draft], tx=connections[database])[0]
        if connections[database].in_atomic_block:  # Else Django calls nothing after the commit.
            enqueued = partial(caller.enqueued, handle, is_committed=True)
            transaction.on_commit(enqueued, using=database)
            return handle
    else:
        transaction.on_commit(AfterCommit(app, draft, caller), using=database)
        return None
    caller.enqueued(handle, is_committed=False)
    return handle


def _is_in_transaction(database: str) -> bool:
    """Return whether this thread is in a transaction, without opening a connection for it."""
    connection = connections[database]
    if connection.in_atomic_block:
        return True
    return connection.connection is not None and not connection.autocommit
