"""Owns the check that the indexes of a Redis store agree with its jobs, key by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from windlass.store.redis.scripting.rows import lane_of

SCHEDULED, PENDING, RUNNING, COMPLETED, DEAD, CANCELLED = range(1, 7)
_STATE, _DUE, _WORKER, _FINISHED, _WAITING_FOR, _CANCEL = 0, 1, 6, 9, 10, 5
_BODY = msgspec.msgpack.Decoder(tuple[Any, ...])
Place = tuple[str, bytes, int]


class Keys:
    """All keys of a prefix, by their names without it."""

    def __init__(self, run: Callable[..., Any], prefix: str) -> None:
        self.run = run
        self.prefix = f"{{{prefix}}}:".encode()
        found = run("KEYS", f"{{{prefix}}}:*")
        self.names = sorted(key.removeprefix(self.prefix) for key in found)

    def under(self, start: str) -> list[bytes]:
        return [name for name in self.names if name.startswith(start.encode())]

    def get(self, name: bytes | str) -> Any:
        return self.run("GET", self.key(name))

    def scores(self, name: bytes | str) -> dict[bytes, int]:
        pairs = self.run("ZRANGE", self.key(name), 0, -1, "WITHSCORES")
        return {pairs[at]: int(pairs[at + 1]) for at in range(0, len(pairs), 2)}

    def members(self, name: bytes | str) -> set[bytes]:
        return set(self.run("SMEMBERS", self.key(name)))

    def hash(self, name: bytes | str) -> dict[bytes, bytes]:
        pairs = self.run("HGETALL", self.key(name))
        return dict(zip(pairs[::2], pairs[1::2], strict=True))

    def key(self, name: bytes | str) -> bytes:
        return self.prefix + (name.encode() if isinstance(name, str) else name)


def check_indexes(run: Callable[..., Any], prefix: str) -> None:
    """Compare the place of every job in every index with what its head says."""
    keys = Keys(run, prefix)
    expected: set[Place] = set()
    counts: Counter[bytes] = Counter()
    ids, values = set(), set()
    for name in keys.under("j:"):
        job = name[2:]
        ids.add(job)
        values |= _job(keys, job, expected, counts)
    assert _found(keys) == expected
    assert {field: int(count) for field, count in keys.hash("n").items()} == counts
    assert set(keys.scores("all")) == ids
    for kind in ("h:", "s:", "y:"):
        assert {name[2:] for name in keys.under(kind)} <= ids, f"a job is gone, and not its {kind}"
    assert _kept_values(keys) == values
    _check_heads(keys)


def _job(keys: Keys, job: bytes, expected: set[Place], counts: Counter[bytes]) -> set[bytes]:
    """Note where a job should be listed; return the references of its large values."""
    body, head = keys.get(b"j:" + job), keys.get(b"h:" + job)
    lane, payload, *_ = _items(body)
    created = int.from_bytes(body[-17:-9])
    first: tuple[Any, Any] = ([PENDING, created], None)
    h, result = _items(head) if head else first
    state, due = h[_STATE], h[_DUE]
    queue, place = lane_of(lane).queue, body[-6:] + job
    counts[f"{state}{queue}".encode()] += 1
    if state == PENDING:
        expected.add((f"L:{lane.decode()}", place, due))
    elif state == SCHEDULED:
        waiting_for = h[_WAITING_FOR]
        timed = waiting_for is False or waiting_for.startswith("event:")
        expected.add((f"{'S' if timed else 'K'}:{queue}", place, due))
        if waiting_for is not False:
            expected.add((f"W:{waiting_for}", place, due))
    elif state == RUNNING:
        assert job in keys.members(f"run:{h[_WORKER]}")
        assert h[_WORKER].encode() in keys.members("holders")
        assert (job in keys.members(f"cancel:{h[_WORKER]}")) == (h[_CANCEL] == 1)
    else:
        expected.add((f"{'D' if state == DEAD else 'F'}:{queue}", job, h[_FINISHED]))
    if state != RUNNING:
        assert not any(job in keys.members(name) for name in keys.under("run:"))
        assert not any(job in keys.members(name) for name in keys.under("cancel:"))
    return {value.encode() for value in (payload, result) if isinstance(value, str)}


def _items(packed: bytes) -> Any:
    """Decode items that follow each other: there are eight in a body, and two behind a head."""
    count = 7 if packed[:1] in (b"\xc4", b"\xc5") else 2
    return _BODY.decode(bytes([0x90 | count]) + packed)


def _found(keys: Keys) -> set[Place]:
    return {
        (name.decode(), member, score)
        for start in ("L:", "S:", "K:", "W:", "D:", "F:")
        for name in keys.under(start)
        for member, score in keys.scores(name).items()
    }


def _kept_values(keys: Keys) -> set[bytes]:
    """Return the references of the values that are kept; others live for an hour at most."""
    names = keys.under("v:")
    return {name[2:] for name in names if keys.run("TTL", keys.key(name)) == -1}


def _check_heads(keys: Keys) -> None:
    heads = {}
    for name in keys.under("L:"):
        bonus = lane_of(name[2:]).priority * 60_000_000
        heads[name[2:]] = min(keys.scores(name).values()) - bonus
    assert keys.scores("heads") == heads
    due = {name[2:]: min(keys.scores(name).values()) for name in keys.under("S:")}
    assert keys.scores("due") == due
