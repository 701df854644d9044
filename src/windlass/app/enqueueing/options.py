"""Owns the options of an enqueue, and the check of each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from msgspec import Struct

from windlass.core.jobs.job import DEFAULT_QUEUE, IDEMPOTENCY_KEY, TAGS
from windlass.core.jobs.unique import Unique
from windlass.core.payloads.codec import MAX_HEADERS, encode_json
from windlass.core.values.durations import When
from windlass.core.values.job_options import (
    checked_max_retries,
    checked_priority,
    checked_tags,
    checked_timeout,
)
from windlass.core.values.names import check_name


class Options(Struct, frozen=True, kw_only=True):
    """How a job is enqueued, apart from its arguments."""

    queue: str = DEFAULT_QUEUE
    priority: int = 0
    key: str | None = None
    due: When | None = None
    expires: When | None = None
    unique: Unique | None = None
    """Its own key, instead of one from the arguments."""
    idempotency_key: str | None = None
    max_retries: int | None = None
    timeout: timedelta | None = None
    headers: dict[str, str] = {}
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_name("queue", self.queue)
        checked_priority(self.priority)
        if self.max_retries is not None:
            checked_max_retries(self.max_retries)
        if self.timeout is not None:
            checked_timeout(self.timeout)
        if self.unique is not None:
            check_name("unique key", self.unique.key)
        if self.idempotency_key is not None:
            check_name("idempotency key", self.idempotency_key)
        if self.key:
            check_name("key", self.key)
        if self.headers:
            _check_headers(self.headers)
        if self.tags:
            checked_tags(self.tags)

    @property
    def sent_headers(self) -> dict[str, str]:
        """The headers with the tags among them."""
        return (
            self.headers | {TAGS: ",".join(checked_tags(self.tags))} if self.tags else self.headers
        )


def _check_headers(headers: Mapping[str, str]) -> None:
    if not all(isinstance(text, str) for pair in headers.items() for text in pair):
        raise ValueError(f"headers must be a mapping of text to text, got {headers!r}")
    if IDEMPOTENCY_KEY in headers:
        check_name("idempotency key", headers[IDEMPOTENCY_KEY])
    size = sum(len(text) for pair in headers.items() for text in pair)
    if size <= MAX_HEADERS:
        size = len(encode_json("headers", headers))
    if size > MAX_HEADERS:
        raise ValueError(
            f"headers must take at most {MAX_HEADERS:,} bytes as JSON, got {size:,}; put large "
            "values into the payload"
        )
