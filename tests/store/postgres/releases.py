"""Owns how today's code is an earlier release: it knows fewer migrations, and fewer columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from windlass.store.postgres import schema
from windlass.store.sql import load_statements

_for_life = ExitStack()


@contextmanager
def release_of(number: int) -> Iterator[None]:
    """Be the release whose newest schema is this one."""
    with pytest.MonkeyPatch.context() as patch:
        known = [step for step in schema.MIGRATIONS if step.number <= number]
        patch.setattr(schema, "MIGRATIONS", known)
        patch.setattr(schema, "WANTED", number)
        if number < 3:
            patch.setattr(schema, "load_statements", _without_steps)
            for columns in ("LIVE", "ENDED"):
                patch.setattr(schema, columns, _no_steps(getattr(schema, columns)))
        yield


def become(number: int) -> None:
    """Be that release for as long as this process lives."""
    _for_life.enter_context(release_of(number))


def _no_steps(columns: str) -> str:
    assert columns.endswith(", steps, saga")
    return columns.replace(", steps, saga", ", NULL::text[], NULL::text")


def _without_steps(package: str) -> dict[str, str]:
    """Return the statements as they were before jobs had steps."""
    statements = load_statements(package)
    redrive = statements["redrive"].replace(", steps, saga)", ")")
    start, end = redrive.index(",\n       %(steps)s"), redrive.index("\nFROM job")
    return {**statements, "redrive": redrive[:start] + redrive[end:]}
