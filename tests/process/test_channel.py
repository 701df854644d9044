"""Messages between processes arrive whole and in order, or the channel says that it is broken."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest

from windlass.core.workers import WorkerPulse
from windlass.process.channel import frame
from windlass.process.supervisor_channel import (
    Beat,
    ChannelEnd,
    Hello,
    Lost,
    Message,
    Ready,
    Registered,
    channel_end,
)
from windlass.settings import Settings

PULSE = WorkerPulse(processed=3, loop_lag=timedelta(seconds=2))


@pytest.fixture
def ends() -> Iterator[tuple[ChannelEnd, ChannelEnd]]:
    """Give a test both ends of a channel."""
    one, other = (channel_end(end) for end in socket.socketpair())
    yield one, other
    one.close()
    other.close()


def test_messages_arrive_whole_and_in_order(ends: tuple[ChannelEnd, ChannelEnd]) -> None:
    sender, receiver = ends
    messages: list[Message] = [
        Hello(Settings(), "here", 3.5),
        Registered("w:1"),
        Ready(),
        Beat(PULSE, 2.0),
        Lost("w:1"),
    ]
    for message in messages:
        assert sender.offer(message)
    received: list[Message] = []
    while len(received) < len(messages):
        received += receiver.receive() or []
    assert received == messages


def test_a_message_that_arrives_in_pieces_is_received_once_it_is_whole() -> None:
    sender, end = socket.socketpair()
    receiver = channel_end(end)
    received: list[Message] = []
    for byte in frame(Registered("w:1")) + frame(Ready()):
        sender.send(bytes([byte]))
        received += receiver.receive() or []
    sender.close()
    receiver.close()
    assert received == [Registered("w:1"), Ready()]


def test_a_peer_that_does_not_read_blocks_nobody_and_misses_no_message_that_is_kept(
    ends: tuple[ChannelEnd, ChannelEnd],
) -> None:
    """Prevents a worker that stands still with its supervisor, or is cut off by a full buffer."""
    ours, theirs = ends
    count = 0
    while not ours._unsent:
        assert ours.offer(Beat(PULSE, 0.0), keep=False)
        assert ours.offer(Registered(str(count := count + 1)))
        assert count < 100_000, "the buffer has no end"
    assert ours.offer(Beat(PULSE, 0.0), keep=False)
    assert frame(Beat(PULSE, 0.0)) not in ours._unsent, "others will follow"

    received: list[Message] = []
    while ours._unsent or not isinstance(received[-1], Ready):
        received += theirs.receive() or []
        if ours._unsent:
            assert ours.offer(Ready())
    registered = [message.worker for message in received if isinstance(message, Registered)]
    assert registered == [str(number) for number in range(1, count + 1)]


def test_a_message_offered_while_a_large_one_is_under_way_follows_it() -> None:
    """Prevents: the answer to a step lands in the middle of the next job's payload."""
    end, other = socket.socketpair()
    end.setblocking(False)
    sender, receiver = channel_end(end), channel_end(other)
    large = Registered("w" * 5_000_000)

    async def main() -> list[Message]:
        sending = asyncio.create_task(sender.send_from_loop(large))
        await asyncio.sleep(0.05)
        assert not sending.done()
        assert sender.offer(Ready())
        received: list[Message] = []
        while len(received) < 2:
            messages = await asyncio.to_thread(receiver.receive)
            received += messages or []
        await sending
        return received

    received = asyncio.run(main())
    sender.close()
    receiver.close()
    assert received == [large, Ready()]


def test_a_message_larger_than_the_buffer_breaks_a_channel_that_may_not_wait(
    ends: tuple[ChannelEnd, ChannelEnd],
) -> None:
    """Prevents: half a frame is followed by another one."""
    ours, theirs = ends
    assert not ours.offer(Registered("w" * 5_000_000))
    assert not ours.offer(Ready())
    assert theirs.receive() == []


def test_bytes_that_are_no_message_end_the_channel_after_those_before_them() -> None:
    sender, end = socket.socketpair()
    receiver = channel_end(end)
    sender.send(frame(Ready()) + b"\x03\0\0\0abc" + frame(Ready()))
    assert receiver.receive() == [Ready()]
    assert receiver.is_garbled
    assert receiver.receive() is None
    sender.close()
    receiver.close()


def test_the_end_of_the_other_side_is_noticed(ends: tuple[ChannelEnd, ChannelEnd]) -> None:
    ours, theirs = ends
    theirs.close()
    assert ours.receive() is None
    assert not ours.offer(Ready())


def test_a_fork_sends_nothing(ends: tuple[ChannelEnd, ChannelEnd]) -> None:
    ours, theirs = ends
    pid = os.fork()
    if pid == 0:
        os._exit(int(ours.offer(Ready())))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    ours.close()
    assert theirs.receive() is None
