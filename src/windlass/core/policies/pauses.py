"""Owns pauses: the queues, kinds and keys of which workers start no jobs, and their records."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from windlass.core.jobs.job import Lane
from windlass.core.values.names import check_name

PAUSES = "pause:"
"""The prefix of the records of pauses."""
Paused = Literal["queue", "kind", "key"]


class Pauses(Struct, frozen=True, kw_only=True):
    """Everything that is paused; false if nothing is."""

    queues: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()

    @classmethod
    def of(cls, records: Iterable[str]) -> Pauses:
        """Read the names of records."""
        found: dict[str, set[str]] = {"queue": set(), "kind": set(), "key": set()}
        for record in records:
            what, _, name = record.removeprefix(PAUSES).partition(":")
            if what in found:
                found[what].add(name)
        return cls(
            queues=frozenset(found["queue"]),
            kinds=frozenset(found["kind"]),
            keys=frozenset(found["key"]),
        )

    def __bool__(self) -> bool:
        return bool(self.queues or self.kinds or self.keys)

    def __iter__(self) -> Iterator[tuple[Paused, str]]:
        """Iterate over all pauses: `("queue", "mail")`."""
        for queue in sorted(self.queues):
            yield "queue", queue
        for kind in sorted(self.kinds):
            yield "kind", kind
        for key in sorted(self.keys):
            yield "key", key

    def holding(self, lane: Lane) -> Iterator[tuple[Paused, str]]:
        """Iterate over the pauses that keep the jobs of a lane from being started."""
        if lane.queue in self.queues:
            yield "queue", lane.queue
        if lane.kind in self.kinds:
            yield "kind", lane.kind
        if lane.key in self.keys:
            yield "key", lane.key


def resuming(what: Paused, name: str) -> str:
    """Return the command that ends a pause."""
    option = f"--{what} "
    if what == "queue":
        option = "-- " if name.startswith("-") else ""
    return f"windlass queues resume {option}{shlex.quote(name)}"


def pause_record(queue: str | None, kind: str | None, key: str | None) -> str:
    """Return the name of the record that pauses a queue, a kind or a key."""
    given = [
        (what, name)
        for what, name in (("queue", queue), ("kind", kind), ("key", key))
        if name is not None
    ]
    if len(given) != 1:
        names = ", ".join(f"{what}={name!r}" for what, name in given) or "none of them"
        raise ValueError(f"exactly one of queue, kind and key must be given, got {names}")
    ((what, name),) = given
    return f"{PAUSES}{what}:{check_name(what, name)}"
