"""Owns changes that are too large for one script: committed as a whole, carried out in pieces.

A batch that was committed is carried out by its producer; if that ends before, by the next worker
that promotes jobs. A piece is carried out once, and a repeated request gets its answer.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from windlass.core.errors import StoreUnavailable
from windlass.store.redis.connections.script import Command
from windlass.store.redis.scripting.calls import Names, Talk
from windlass.store.redis.scripting.rows import MICROSECOND

_TIME_TO_LIVE_SECONDS = 3600
_PRODUCERS_OWN = timedelta(seconds=10)
"""Seconds for which a batch is left to its producer."""
_UNPARKED_AT_ONCE = 100
_ANSWER_BYTES = 17


def pack(job: bytes, made: bytes, options: bytes) -> bytes:
    """Return a job in the format of a piece."""
    return job + struct.pack(">II", len(made), len(options)) + made + options


def write(names: Names, batch: str, number: int, jobs: Sequence[bytes]) -> Command:
    """Return the command that writes a piece; one that is never committed is gone after an hour."""
    key = names.key(f"stage:{batch}:{number}")
    return ("SET", key, b"".join(jobs), "EX", _TIME_TO_LIVE_SECONDS)


def commit(names: Names, batch: str, pieces: int) -> Talk[None]:
    """Commit a batch: all of it is carried out, or nothing.

    Raises:
        StoreUnavailable: its producer was so slow that pieces are gone.
    """
    own = _PRODUCERS_OWN // MICROSECOND
    (committed,) = yield [names.call("commit", batch, pieces, own)]
    if not committed:
        raise StoreUnavailable("the batch took longer than an hour to write, and nothing was added")


def carry_out_piece(names: Names, batch: str, number: int, pieces: int) -> Talk[list[Any]]:
    """Carry out a piece once; return for each job its id, and 1 if it is that of a holder."""
    (packed,) = yield [names.call("carry_out", batch, number, pieces)]
    reply: list[Any] = []
    for at in range(0, len(packed), _ANSWER_BYTES):
        reply += (packed[at : at + 16], packed[at + 16 : at + 17] == b"1")
    return reply


def carry_out(names: Names, entry: bytes) -> Talk[None]:
    """Carry out the rest of an entry in the list of unfinished batches."""
    kind, number, rest = entry.decode().split(":", 2)
    if kind == "unpark":
        more = 1
        while more:
            (more,) = yield [names.call("unpark", entry, number, rest, _UNPARKED_AT_ONCE)]
        return
    (done,) = yield [("GET", names.key(f"stage:{number}"))]
    for piece in range(int(done or 0), int(rest)):
        yield from carry_out_piece(names, number, piece, int(rest))
