"""Owns how an enqueue goes with Django's transaction: in it, after its commit, or without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from django.db import connections, transaction

from windlass.app.handle import Handle
from windlass.app.producer import Draft
from windlass.contrib.django.options import is_database

if TYPE_CHECKING:
    from windlass.contrib.django.project_apps import ProjectApp

Way = Literal["join", "on_commit", "off"]


def way_of(app: ProjectApp) -> Way:
    """Return how enqueues go with transactions of the database: as given, else as is possible."""
    if not app.store.capabilities.transactional:
        return "off" if app.options.transaction == "off" else "on_commit"
    if app.options.transaction is not None:
        return app.options.transaction  # type: ignore[return-value]
    is_same = is_database(app.settings.url, app.options.database)
    return "join" if is_same else "on_commit"


class AfterCommit:
    """An enqueue that waits for the commit; tests find these among Django's callbacks."""

    def __init__(
        self, app: ProjectApp, draft: Draft[Any], done: Callable[[Handle[Any]], None]
    ) -> None:
        self.app = app
        self._draft = draft
        self._done = done

    def __call__(self) -> None:
        """Enqueue the job."""
        self._done(self.app.enqueue_draft(self._draft))


def enqueue(
    app: ProjectApp, draft: Draft[Any], done: Callable[[Handle[Any]], None]
) -> Handle[Any] | None:
    """Enqueue a job as the current transaction wants it, and call `done` once it is.

    Returns: the handle; None if the job waits for the commit.
    """
    database = app.options.database
    way = way_of(app)
    if way == "off" or not _is_in_transaction(database):
        handle = app.enqueue_draft(draft)
    elif way == "join":
        handle = app.enqueue_many([draft], tx=connections[database])[0]
    else:
        transaction.on_commit(AfterCommit(app, draft, done), using=database)
        return None
    done(handle)
    return handle


def _is_in_transaction(database: str) -> bool:
    """Return whether this thread is in a transaction, without opening a connection for it."""
    connection = connections[database]
    if connection.in_atomic_block:
        return True
    return connection.connection is not None and not connection.autocommit
