"""What a child says of a job that ended arrives whole."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from windlass.core.job import Job
from windlass.core.settle import Transition
from windlass.core.states import State
from windlass.runtime.words import Settled, frame, word_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
JOB = Job(
    id=UUID(int=1),
    kind="work",
    queue="default",
    priority=0,
    key="k",
    state=State.RUNNING,
    payload=b"{}",
    due_at=NOON,
    created_at=NOON,
    token=7,
)


@pytest.mark.parametrize("hold", [None, timedelta(hours=1), NOON])
def test_for_how_long_a_key_is_held_back_is_not_lost(hold: timedelta | datetime | None) -> None:
    """Prevents: an ordered job in a child is run again at once, however long it wanted to wait."""
    move = Transition(id=JOB.id, token=7, state=State.PENDING, hold=hold)
    said = word_of(frame(Settled.of(move))[4:])
    assert isinstance(said, Settled)
    assert said.transition(JOB) == move
