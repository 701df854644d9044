"""Owns which space a queue belongs to: a space is a whole store, and nothing atomic crosses one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from windlass.core.errors import ConfigError

DEFAULT_SPACE = "default"
"""The space of the queues that no other space names."""
_MAX_CACHED_QUEUES = 10_000


class Space(NamedTuple):
    """A space, and the queues in it; `*` in the name of a queue stands for any text."""

    name: str
    queues: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}={'|'.join(self.queues)}"

    def holds(self, queue: str) -> bool:
        """Return whether the queue is named by this space."""
        return any(_matches(pattern, queue) for pattern in self.queues)


@lru_cache(_MAX_CACHED_QUEUES)
def space_of(spaces: Sequence[Space], queue: str) -> str:
    """Return the name of the space of a queue: the first that names it, else the default space."""
    return next((space.name for space in spaces if space.holds(queue)), DEFAULT_SPACE)


def one_space_of(spaces: Sequence[Space], queues: Iterable[str], what: str, remedy: str) -> str:
    """Return the space that all of the queues are in.

    Raises:
        ConfigError: they are in several.
    """
    found: dict[str, str] = {}
    for queue in queues:
        found.setdefault(space_of(spaces, queue), queue)
    if len(found) > 1:
        (one, first), (other, second) = list(found.items())[:2]
        raise ConfigError(
            f"{what} must be in one space, got queue {first!r} of space {one} and queue "
            f"{second!r} of space {other}; {remedy}"
        )
    return next(iter(found), DEFAULT_SPACE)


def _matches(pattern: str, queue: str) -> bool:
    if "*" not in pattern:
        return pattern == queue
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), queue, re.DOTALL) is not None
