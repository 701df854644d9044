"""Owns the stream of a job: chunks that its runs produce, as they travel to the store and back.

Chunks are numbered from 1 on. An attempt that follows another one keeps the chunks that came before
the last step that was recorded, and replaces the others; so the chunks of a stream, in the order of
their numbers, are also in the order of the attempts that wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from msgspec import Raw, Struct
from msgspec.json import decode

from windlass.core.errors import PayloadError, PermanentError

MAX_CHUNKS = 10_000
MAX_BYTES = 1024 * 1024
_POSITION = re.compile(r"(\d{1,9})-(\d{1,9})")


class ChunkInvalid(PayloadError):
    """A chunk of a job of this `kind` that cannot be stored, for a `reason`.

    Remedy:
        Send text, or values that have a JSON form; the reason says what is wrong.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)
        self.kind = kind
        self.reason = reason

    def __str__(self) -> str:
        return f"a chunk in the stream of {self.kind!r} cannot be stored: {self.reason}"


class StreamFull(PermanentError):
    """The stream of a job has as many `chunks`, or bytes (`size`), as it may.

    Remedy:
        Put more into each chunk, or raise `WINDLASS_MAX_STREAM_CHUNKS` or `WINDLASS_MAX_STREAM`.
    """

    def __init__(self, chunks: int, size: int, limits: StreamLimits) -> None:
        super().__init__(chunks, size, limits)
        self.chunks = chunks
        self.size = size
        self.limits = limits

    def __str__(self) -> str:
        if self.chunks > self.limits.chunks:
            return (
                f"a stream must have at most {self.limits.chunks:,} chunks, got one more; put more "
                "into each chunk, or raise WINDLASS_MAX_STREAM_CHUNKS"
            )
        return (
            f"a stream must have at most {self.limits.size:,} bytes, got {self.size:,}; store the "
            "data elsewhere and stream a reference, or raise WINDLASS_MAX_STREAM"
        )


class StreamLimits(NamedTuple):
    """How many chunks, and how many bytes in all, the stream of a job may have."""

    chunks: int = MAX_CHUNKS
    size: int = MAX_BYTES

    def check(self, chunks: int, size: int) -> None:
        """Check what a stream would have.

        Raises: StreamFull: that is too much.
        """
        if chunks > self.chunks or size > self.size:
            raise StreamFull(chunks, size, self)


class Position(NamedTuple):
    """A place in a stream: the number of the last chunk that was read, and who wrote it."""

    attempt: int = 0
    number: int = 0

    def __str__(self) -> str:
        return f"{self.attempt}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read a position that was written as text.

        Raises: ValueError: the text is none.
        """
        match = _POSITION.fullmatch(text)
        if match is None:
            raise ValueError(
                f"after must be the position of a stream, like '1-17', got {text!r}; take it from "
                "stream.position, or leave it out to begin at the first chunk"
            )
        return cls(int(match[1]), int(match[2]))


BEGIN = Position()
"""The position of a reader who has seen nothing."""


class ChunkGroup(Struct, frozen=True, kw_only=True):
    """Chunks that a running job adds to its stream, under its fence."""

    id: UUID
    token: int
    attempt: int
    offset: int
    """How many chunks this attempt has added before."""
    resumed: int
    """How far the job had come along its steps when this attempt began."""
    steps: int
    """How far it is now: a later attempt replaces the chunks after the place where it resumes."""
    chunks: tuple[bytes, ...]
    """Each as JSON."""

    @property
    def size(self) -> int:
        """The bytes of all chunks."""
        return sum(map(len, self.chunks))

    @property
    def data(self) -> bytes:
        """All chunks as one JSON array."""
        return b"[" + b",".join(self.chunks) + b"]"


class Appended(NamedTuple):
    """How many chunks and bytes a stream, or a part of it, has."""

    chunks: int
    size: int

    def plus(self, chunks: int, size: int) -> Appended:
        """Return what it has with some more."""
        return Appended(self.chunks + chunks, self.size + size)


class StoredGroup(NamedTuple):
    """Chunks that were added together; `last` is the number of the last of them."""

    attempt: int
    last: int
    chunks: tuple[bytes, ...]

    @classmethod
    def of(cls, attempt: int, last: int, data: bytes | str) -> StoredGroup:
        """Make a group from the JSON array in which it is stored."""
        return cls(attempt, last, tuple(map(bytes, decode(data, type=list[Raw]))))

    @property
    def first(self) -> int:
        """The number of its first chunk."""
        return self.last - len(self.chunks) + 1


class StreamPage(NamedTuple):
    """Groups after a position, and whether more may follow because the job has not ended."""

    groups: Sequence[StoredGroup]
    is_live: bool


class StreamRestart(Struct, frozen=True):
    """A new attempt has begun to stream: its chunks replace those after the first `kept`."""

    attempt: int
    kept: int
