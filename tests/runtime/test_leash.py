"""What a worker and its supervisor say to each other, and what happens when one falls silent."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import msgspec
import pytest

from windlass.core.job import Pulse
from windlass.runtime.leash import Beat, End, Hello, Leash, Lost, Ready, Registered, Renewed, Word
from windlass.settings import Settings

LEASE = timedelta(seconds=1)
PULSE = Pulse(processed=3, loop_lag=timedelta(seconds=2))


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    """Give a test both ends of a line."""
    one, other = (End(end) for end in socket.socketpair())
    yield one, other
    one.close()
    other.close()


def until(look: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 10
    while not look():
        assert time.monotonic() < give_up
        time.sleep(0.01)


class Store:
    """Counts the renewals that a worker makes by itself."""

    def __init__(self) -> None:
        self.renewed: list[str] = []

    def heartbeat(self, worker: str, _pulse: Pulse, _timeout: timedelta) -> bool:
        self.renewed.append(worker)
        return True


def test_words_arrive_whole_and_in_order(ends: tuple[End, End]) -> None:
    sent, line = ends
    words: list[Word] = [
        Hello(Settings(), "here", 3.5),
        Registered("w:1"),
        Ready(),
        Beat(PULSE, 2.0),
        Lost("w:1"),
    ]
    for word in words:
        assert sent.say(word)
    heard: list[Word] = []
    while len(heard) < len(words):
        heard += line.hear() or []
    assert heard == words


def test_a_word_that_arrives_in_pieces_is_heard_once_it_is_whole() -> None:
    sender, end = socket.socketpair()
    line = End(end)
    data = msgspec.json.encode(Registered("w:1")) + b"\n" + msgspec.json.encode(Ready()) + b"\n"
    heard: list[Word] = []
    for byte in data:
        sender.send(bytes([byte]))
        heard += line.hear() or []
    sender.close()
    line.close()
    assert heard == [Registered("w:1"), Ready()]


def test_who_does_not_listen_holds_nobody_up_and_misses_no_word_but_beats(
    ends: tuple[End, End],
) -> None:
    """Prevents a worker that stands still with its supervisor, or is cut off by a full buffer."""
    ours, theirs = ends
    beats = 0
    while not ours._unsaid:
        assert ours.say(Beat(PULSE, 0.0))
        assert ours.say(Registered(str(beats := beats + 1)))
        assert beats < 100_000, "the buffer has no end"
    assert ours.say(Beat(PULSE, 0.0))
    assert not [word for word in ours._unsaid if isinstance(word, Beat)], "others will come"

    heard: list[Word] = []
    while ours._unsaid or not isinstance(heard[-1], Ready):
        heard += theirs.hear() or []
        if ours._unsaid:
            assert ours.say(Ready())
    registered = [word.worker for word in heard if isinstance(word, Registered)]
    assert registered == [str(number) for number in range(1, beats + 1)]


def test_the_end_of_the_other_side_is_noticed(ends: tuple[End, End]) -> None:
    ours, theirs = ends
    theirs.close()
    assert ours.hear() is None
    assert not ours.say(Ready())


def test_a_fork_has_nothing_to_say(ends: tuple[End, End]) -> None:
    ours, theirs = ends
    pid = os.fork()
    if pid == 0:
        os._exit(int(ours.say(Ready())))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    ours.close()
    assert theirs.hear() is None


def test_a_worker_leaves_renewal_to_its_supervisor_for_as_long_as_that_does_it(
    ends: tuple[End, End],
) -> None:
    ours, theirs = ends
    leash, store, orphaned = Leash(ours), Store(), threading.Event()
    leash.start(orphaned.set)
    renew = leash.renewing(store.heartbeat, LEASE)
    leash.say(Registered("w:1"))
    assert renew("w:1", PULSE, LEASE)
    assert store.renewed == []

    leash._renewed_at -= 0.6
    assert renew("w:1", PULSE, LEASE)
    assert store.renewed == ["w:1"], "half a lease without a word, so it helps itself"

    theirs.say(Lost("w:1"))
    until(lambda: not renew("w:1", PULSE, LEASE))
    assert renew("w:2", PULSE, LEASE), "another lease is another matter"

    before = leash._renewed_at
    theirs.say(Renewed())
    until(lambda: leash._renewed_at > before)

    theirs.close()
    assert orphaned.wait(5)
    assert renew("w:2", PULSE, LEASE)
    assert store.renewed[-1] == "w:2"
