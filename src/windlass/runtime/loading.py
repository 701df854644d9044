"""Owns the knowledge whether this process is a child that is importing its worker's program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from windlass.core.errors import ConfigError

_loading: list[bool] = []


@contextmanager
def in_child() -> Iterator[None]:
    """Say so during a block."""
    _loading.append(True)
    try:
        yield
    finally:
        _loading.pop()


def refuse_worker() -> None:
    """Refuse a worker that a program starts as soon as it is imported.

    Raises:
        ConfigError: it would start in each of its children, too.
    """
    if _loading:
        raise ConfigError(
            "this module starts a worker when it is imported, and its child processes import it "
            "again: start it under `if __name__ == '__main__':`"
        )
