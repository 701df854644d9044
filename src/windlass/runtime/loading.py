"""Owns the knowledge whether this process is a child that is importing its worker's program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_refusals: list[Callable[[str], None]] = []


@contextmanager
def in_child(refuse: Callable[[str], None]) -> Iterator[None]:
    """Say so during a block; `refuse` is told why the child cannot go on."""
    _refusals.append(refuse)
    try:
        yield
    finally:
        _refusals.remove(refuse)


def refuse_worker() -> None:
    """End a child whose program starts a worker as soon as it is imported.

    It would start in each of its children, too. An exception would not do: the program may wait for
    that worker's work before it looks at its fate.
    """
    for refuse in _refusals:
        refuse(
            "this program starts a worker when it is imported, and its child processes import it "
            "again: start it under `if __name__ == '__main__':`"
        )
