"""Owns the flag that this process is a child which is importing its worker's program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_refusals: list[Callable[[str], None]] = []


@contextmanager
def in_child(refuse: Callable[[str], None]) -> Iterator[None]:
    """Mark this process as a child during a block; `refuse` is called with the reason to end."""
    _refusals.append(refuse)
    try:
        yield
    finally:
        _refusals.remove(refuse)


def refuse_worker() -> None:
    """End a child whose program starts a worker as soon as it is imported.

    The program would start a worker in each of its children, too. An exception is not enough: the
    program may wait for that worker's jobs before it sees the error.
    """
    for refuse in _refusals:
        refuse(
            "this program starts a worker when it is imported, and its child processes import it "
            "again; start the worker under `if __name__ == '__main__':`"
        )
