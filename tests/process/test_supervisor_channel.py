"""What a worker and its supervisor say to each other, and what happens when one falls silent."""

from __future__ import annotations

import fcntl
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from windlass.core.errors import WindlassError
from windlass.core.workers import WorkerPulse
from windlass.process import supervisor_channel
from windlass.process.supervisor_channel import (
    Beat,
    Begin,
    ChannelEnd,
    Lost,
    Message,
    Registered,
    Renewed,
    Stopping,
    SupervisorChannel,
    channel_end,
)

LEASE = timedelta(seconds=1)
PULSE = WorkerPulse(processed=3, loop_lag=timedelta(seconds=2))


@pytest.fixture
def ends() -> Iterator[tuple[ChannelEnd, ChannelEnd]]:
    """Give a test both ends of a line."""
    one, other = (channel_end(end) for end in socket.socketpair())
    yield one, other
    one.close()
    other.close()


def until(look: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not look():
        assert time.monotonic() < give_up
        time.sleep(0.01)


class Store:
    """Counts the renewals that a worker makes by itself."""

    def __init__(self) -> None:
        self.renewed: list[str] = []

    def heartbeat(self, worker: str, _pulse: WorkerPulse, _timeout: timedelta) -> bool:
        self.renewed.append(worker)
        return True


def test_a_worker_begins_once_its_supervisor_says_so(
    ends: tuple[ChannelEnd, ChannelEnd],
) -> None:
    theirs, ours = ends
    channel = SupervisorChannel(ours)
    theirs.offer(Renewed())
    theirs.offer(Begin())
    assert channel.wait_for_begin()


def test_a_worker_of_a_process_with_thousands_of_files_begins() -> None:
    """Prevents the error of `select`, which has no number for the 1,024th file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2_048)), hard))
    one, other = socket.socketpair()
    try:
        high = socket.socket(fileno=fcntl.fcntl(other, fcntl.F_DUPFD, 1_500))
        theirs, ours = channel_end(one), channel_end(high)
        theirs.offer(Begin())
        assert SupervisorChannel(ours).wait_for_begin()
        theirs.close()
        ours.close()
    finally:
        other.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_worker_whose_supervisor_ended_before_it_ran_does_not_begin(
    ends: tuple[ChannelEnd, ChannelEnd],
) -> None:
    theirs, ours = ends
    theirs.close()
    assert not SupervisorChannel(ours).wait_for_begin()


def test_a_worker_does_not_wait_for_ever_for_a_supervisor_of_another_release(
    ends: tuple[ChannelEnd, ChannelEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_channel, "_BEGIN_SECONDS", 0.05)
    theirs, ours = ends
    theirs.offer(Renewed())
    with pytest.raises(WindlassError, match="restart `windlass worker`"):
        SupervisorChannel(ours).wait_for_begin()


def test_a_worker_leaves_renewal_to_its_supervisor_for_as_long_as_that_does_it(
    ends: tuple[ChannelEnd, ChannelEnd],
) -> None:
    ours, theirs = ends
    channel, store, orphaned = SupervisorChannel(ours), Store(), threading.Event()
    channel.start(orphaned.set)
    renew = channel.renewing(store.heartbeat, LEASE)
    channel.say(Registered("w:1"))
    assert renew("w:1", PULSE, LEASE)
    assert store.renewed == []

    channel._renewed_at -= 0.6
    assert renew("w:1", PULSE, LEASE)
    assert store.renewed == ["w:1"], "half a lease without a word, so it helps itself"

    theirs.offer(Lost("w:1"))
    until(lambda: not renew("w:1", PULSE, LEASE))
    assert renew("w:2", PULSE, LEASE), "another lease is another matter"

    before = channel._renewed_at
    theirs.offer(Renewed())
    until(lambda: channel._renewed_at > before)

    theirs.close()
    assert orphaned.wait(60)
    assert renew("w:2", PULSE, LEASE)
    assert store.renewed[-1] == "w:2"


def test_a_signal_counts_as_the_supervisors_once_it_says_so(
    ends: tuple[ChannelEnd, ChannelEnd],
) -> None:
    """Prevents suspects after a shutdown whose signal reached the worker before its supervisor."""
    ours, theirs = ends
    channel = SupervisorChannel(ours)
    channel.start(lambda: None)
    before = channel.is_signalled_by_others
    channel.is_signalled = True
    assert (before, channel.is_signalled_by_others) == (False, True)
    theirs.offer(Stopping())
    until(lambda: not channel.is_signalled_by_others)


def test_a_worker_beats_while_its_own_renewal_waits_for_the_store(
    ends: tuple[ChannelEnd, ChannelEnd],
) -> None:
    """Prevents a supervisor that takes an outage of the store for a blocked event loop."""
    ours, theirs = ends
    channel, answered = SupervisorChannel(ours), threading.Event()
    channel.loop_lag = lambda: 0.125
    channel._renewed_at -= 0.6
    renew = channel.renewing(lambda *_: answered.wait(60), LEASE)
    waiting = threading.Thread(target=renew, args=("w:1", PULSE, LEASE))
    waiting.start()
    heard: list[Message] = []
    while len(heard) < 3:
        assert select.select([theirs], [], [], 60)[0], "nothing more is heard"
        heard += theirs.receive() or ()
    answered.set()
    waiting.join(60)
    assert heard[1:3] == [Beat(PULSE, 0.125)] * 2
