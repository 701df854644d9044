"""What is said about the fate of a call is true after any sequence of answers and silence."""

from __future__ import annotations

import pytest

from windlass.core.errors import QueueFull, StoreUnavailable, WriteUncertain
from windlass.store.redis.connections.conversation import Conversation
from windlass.store.redis.connections.replies import ConnectionLost, ReplyError
from windlass.store.redis.connections.script import Command
from windlass.store.redis.connections.servers.topology import Topology
from windlass.store.redis.connections.servers.urls import parse

ADDRESS = parse("redis://host")


class Connection:
    endpoint = ADDRESS.hosts[0]
    term = 0


HERE = Connection()
READONLY = ReplyError("READONLY You can't write against a read only replica.")
OOM = ReplyError("OOM command not allowed when used memory > 'maxmemory'.")


def conversation(*commands: Command) -> Conversation:
    return Conversation(
        commands, Topology(ADDRESS), ADDRESS, now=0.0, timeout=10.0, again=True, replicas=0
    )


def test_a_refusal_says_nothing_about_an_attempt_before_it() -> None:
    talk = conversation(("INCR", "a"))
    talk.outgoing(0.0)
    talk.lost(ConnectionLost("cut", sent=True))
    talk.pause(0.1)
    talk.outgoing(0.2)
    assert not talk.answered([READONLY], HERE)
    with pytest.raises(WriteUncertain):
        talk.pause(11.0)


def test_a_full_server_says_nothing_about_an_attempt_before_it() -> None:
    talk = conversation(("INCR", "a"))
    talk.outgoing(0.0)
    talk.lost(ConnectionLost("cut", sent=True))
    talk.pause(0.1)
    talk.outgoing(0.2)
    with pytest.raises(WriteUncertain):
        talk.answered([OOM], HERE)


def test_an_answer_settles_what_an_attempt_before_it_left_open() -> None:
    talk = conversation(("INCR", "a"), ("INCR", "b"))
    talk.outgoing(0.0)
    talk.lost(ConnectionLost("cut", sent=True))
    talk.pause(0.1)
    talk.outgoing(0.2)
    assert talk.answered([1, 2], HERE)
    assert talk.replies == [1, 2]


def test_a_call_of_which_a_part_was_written_is_uncertain() -> None:
    talk = conversation(("INCR", "a"), ("INCR", "b"))
    talk.outgoing(0.0)
    assert not talk.answered([1, READONLY], HERE)
    with pytest.raises(WriteUncertain):
        talk.pause(11.0)


def test_a_call_of_which_nothing_was_written_is_certain() -> None:
    talk = conversation(("GET", "a"), ("INCR", "b"))
    talk.outgoing(0.0)
    assert not talk.answered([b"1", READONLY], HERE)
    with pytest.raises(StoreUnavailable) as refused:
        talk.pause(11.0)
    assert not isinstance(refused.value, WriteUncertain)
    talk = conversation(("INCR", "a"))
    talk.outgoing(0.0)
    with pytest.raises(QueueFull):
        talk.answered([OOM], HERE)
