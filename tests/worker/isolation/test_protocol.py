"""What a child says of a job that ended arrives whole."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest

from windlass.core.jobs.job import Job
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.states import State
from windlass.worker.isolation.protocol import ChildMessage, Settled

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
    data = msgspec.msgpack.encode(Settled.of(move))
    said = msgspec.msgpack.decode(data, type=ChildMessage)
    assert isinstance(said, Settled)
    assert said.transition(JOB) == move
