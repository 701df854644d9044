"""Owns the error of an enqueue whose outcome is unknown, and the way to repeat it safely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from windlass.app.handle import Handle
from windlass.core.errors import StoreUnavailable, WriteUncertain

if TYPE_CHECKING:
    from windlass.app.app import Windlass
    from windlass.app.producer import Draft


class EnqueueUncertain(WriteUncertain):
    """The store did not answer: the jobs may or may not have been enqueued, or may be yet.

    `drafts` are what was sent. To enqueue them again, by `retry()` or by `app.enqueue_many`, cannot
    enqueue a job twice, since a draft has its job's id. A new `enqueue(...)` of the same arguments
    makes another job, and can.

    Remedy:
        Call `error.retry()`, in a coroutine `await error.aretry()`: it never enqueues a job twice.

    Example:
        `except EnqueueUncertain as error: (handle,) = error.retry()`
    """

    def __init__(self, reason: str, drafts: Sequence[Draft[Any]]) -> None:
        super().__init__(reason, tuple(drafts))
        self.reason = reason
        self.drafts: tuple[Draft[Any], ...] = tuple(drafts)
        self._app: Windlass | None = None

    def __str__(self) -> str:
        jobs, they = ("the job", "it") if len(self.drafts) == 1 else ("the jobs", "them")
        return (
            f"{self.reason}: {jobs} may or may not have been enqueued; error.retry(), or await "
            f"error.aretry(), repeats the enqueue and never adds {they} twice"
        )

    @property
    def draft(self) -> Draft[Any]:
        """The draft that was sent, if it was one.

        Raises:
            ValueError: there were several, or none.
        """
        (draft,) = self.drafts
        return draft

    def retry(self) -> list[Handle[Any]]:
        """Enqueue the same drafts again, all or none, from blocking code.

        Raises:
            EnqueueUncertain: the store did not answer, or cannot be reached now; what became of the
                first attempt is as uncertain as before.
            CalledFromEventLoop: this would block an event loop.
        """
        app = self._sender()
        try:
            return app.enqueue_many(self.drafts)
        except StoreUnavailable as error:
            raise self._still(app, error) from error

    async def aretry(self) -> list[Handle[Any]]:
        """Enqueue the same drafts again, all or none, from a coroutine: see `retry`."""
        app = self._sender()
        try:
            return await app.aenqueue_many(self.drafts)
        except StoreUnavailable as error:
            raise self._still(app, error) from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the app behind, which has no place in another process."""
        return type(self), (self.reason, self.drafts)

    def _still(self, app: Windlass, error: StoreUnavailable) -> EnqueueUncertain:
        return error if isinstance(error, EnqueueUncertain) else uncertain(app, error, self.drafts)

    def _sender(self) -> Windlass:
        if self._app is None:
            raise RuntimeError(
                "this error comes from another process; write: app.enqueue_many(error.drafts)"
            )
        return self._app


def uncertain(
    app: Windlass, error: StoreUnavailable, drafts: Sequence[Draft[Any]]
) -> EnqueueUncertain:
    """Return the error of an enqueue for that of the store."""
    raised = EnqueueUncertain(str(error), drafts)
    raised._app = app
    return raised
