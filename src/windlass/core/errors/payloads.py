"""Owns errors about values and jobs that cannot be enqueued or stored."""

from __future__ import annotations

from windlass.core.errors.base import WindlassError


class PayloadError(WindlassError):
    """Arguments, or a result, that cannot be stored.

    Remedy:
        Correct the value that the message names; the subclasses say what is wrong.
    """


class PayloadInvalid(PayloadError):
    """A payload whose `field` does not fit its handler, for a `reason`.

    Remedy:
        Pass the field as the handler's signature says. If old jobs have another form, let
        the handler accept both; `windlass check` finds them before a deploy.
    """

    def __init__(self, kind: str, field: str, reason: str) -> None:
        super().__init__(kind, field, reason)
        self.kind = kind
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        where = f"field {self.field!r}" if self.field else "the payload"
        return f"invalid payload for {self.kind!r}: {where}: {self.reason}"


class PayloadTooLarge(PayloadError):
    """A payload of more bytes than the limit allows.

    Remedy:
        Store the object elsewhere and enqueue its id, or raise `WINDLASS_MAX_PAYLOAD`.
    """

    def __init__(self, kind: str, size: int, limit: int) -> None:
        super().__init__(kind, size, limit)
        self.kind = kind
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"the payload of {self.kind!r} has {self.size:,} bytes, the limit is {self.limit:,}; "
            "store the object elsewhere and enqueue its id, or raise WINDLASS_MAX_PAYLOAD"
        )


class ResultInvalid(PayloadError):
    """A result of a handler that cannot be stored.

    Remedy:
        Return JSON-like values, dataclasses, structs or models; store large results
        elsewhere and return a reference, or raise `WINDLASS_MAX_RESULT`.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)
        self.kind = kind
        self.reason = reason

    def __str__(self) -> str:
        return f"the result of {self.kind!r} cannot be stored: {self.reason}"


class FanOutTooLarge(WindlassError):
    """A fan-out would make more jobs than `at_most`; `enqueued` jobs were added before that.

    Remedy:
        Raise `at_most=` if that many jobs are meant; otherwise correct the iterable.
    """

    def __init__(self, at_most: int, enqueued: int) -> None:
        super().__init__(at_most, enqueued)
        self.at_most = at_most
        self.enqueued = enqueued

    def __str__(self) -> str:
        before = f"{self.enqueued:,} were already enqueued" if self.enqueued else "none was"
        return (
            f"there are more than {self.at_most:,} jobs, and {before}; to enqueue more, raise "
            "at_most="
        )


class FlowInvalid(WindlassError):
    """A flow in which some job could never run, or that is too large.

    Remedy:
        Correct the job that the message names: remove the circle, add the missing job, or
        split the flow.
    """
