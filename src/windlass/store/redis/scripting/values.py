"""Owns large payloads and results: each in a key of its own, which no script reads.

A value is written before the script that refers to it, with a time to live that the script takes
away. So one whose script never came, or whose fence did not hold, is gone after an hour.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from windlass.core.errors import StoreUnavailable
from windlass.store.redis.connections.script import Command
from windlass.store.redis.scripting.rows import NOTHING, encode

LARGE = 512
"""Bytes above which a value has a key of its own; docs/decisions/0031 has the figures."""
TIME_TO_LIVE = 3600


MISSING = -1
"""The answer of a script that found a referenced value missing; it has written nothing."""


class Item(NamedTuple):
    """A value as it is written into a job: itself, or a reference to the key that holds it."""

    packed: bytes
    reference: str = ""
    value: bytes = b""


def item_of(value: bytes | None) -> Item:
    """Return the item of a payload or result."""
    if value is None:
        return Item(NOTHING)
    if len(value) <= LARGE:
        return Item(encode(value))
    reference = base64.urlsafe_b64encode(os.urandom(15)).decode()
    return Item(encode(reference), reference, value)


def writes(namespace: bytes, items: Sequence[Item]) -> list[Command]:
    """Return the commands that write the large values among items."""
    return [
        ("SET", value_key(namespace, item.reference), item.value, "EX", TIME_TO_LIVE)
        for item in items
        if item.reference
    ]


def value_key(namespace: bytes, reference: str) -> bytes:
    """Return the key that holds a value."""
    return namespace + b"v:" + reference.encode()


def reads(namespace: bytes, references: Sequence[str], size: int) -> Iterator[Command]:
    """Return the commands that read values, each `size` of them."""
    for start in range(0, len(references), size):
        piece = references[start : start + size]
        yield ("MGET", *(value_key(namespace, reference) for reference in piece))


def paired(
    references: Sequence[str], replies: Sequence[Sequence[bytes | None]]
) -> dict[str, bytes]:
    """Return values by their references; one that is missing was deleted by another client."""
    values = (value for reply in replies for value in reply)
    pairs = zip(references, values, strict=True)
    return {reference: value for reference, value in pairs if value is not None}


def check_written(reply: object) -> None:
    """Raise if a script refers to a missing value: the server failed over in between.

    Raises:
        StoreUnavailable: nothing was written.
    """
    if reply in (MISSING, b"missing"):
        raise StoreUnavailable("a large value was lost before its job was written; repeat the call")


NO_VALUES: Mapping[str, bytes] = {}
