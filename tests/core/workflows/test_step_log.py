"""The log of steps: what it tells as a whole, and what it expects of the next run."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from windlass.core.errors import StepError, StepsChanged
from windlass.core.jobs.job import ErrorInfo
from windlass.core.jobs.states import State
from windlass.core.workflows.step_log import (
    Done,
    Entry,
    Failed,
    Over,
    Slept,
    Started,
    Steps,
    UndoFailed,
    Undoing,
    Undone,
    Waited,
    Walk,
    in_brief,
    named,
    read,
    written,
)

quick = settings(max_examples=60)
names = st.sampled_from("abcdef")
ENTRIES: list[Entry] = [
    Started(name="a"),
    Started(name="a", main=False),
    Done(name="a", result=Raw(b'{"x":[1,2]}'), seconds=0.5),
    Done(name="ü🙂", main=False),
    Failed(name="a", error="OSError: away", seconds=1.5),
    Slept(name="sleep-1"),
    Waited(name="paid", event=UUID(int=7), result=Raw(b"1")),
    Waited(name="paid"),
    Undoing(state=State.DEAD, reason="x", error=ErrorInfo(type="E", message="m"), crashes=2),
    Undone(name="a", seconds=0.1),
    UndoFailed(name="a", error="OSError", failures=3, for_good=True),
    Over(),
]


def log(*entries: Entry) -> Steps:
    return Steps(written(entry) for entry in entries)


def done(*names: str, main: bool = True) -> list[Entry]:
    return [Done(name=name, main=main) for name in names]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_an_entry_comes_back_as_it_was_written(entry: Entry) -> None:
    again = read(written(entry))
    assert written(again) == written(entry)
    assert type(again) is type(entry)


def test_an_entry_of_another_release_is_not_guessed_at() -> None:
    """It is counted for those who need the log; who only settles the job is not stopped."""
    steps = Steps(['{"entry":"teleported"}', written(Done(name="a"))])
    assert (steps.unreadable, list(steps.finished)) == (1, ["a"])


def test_a_second_life_knows_what_the_first_one_had() -> None:
    had = uuid4()
    first = Steps([written(Waited(name="paid", event=had)), written(Done(name="a"))])
    second = Steps(first.next_life())
    assert (second.life, second.events, second.names) == (1, {had}, [])
    assert Steps(second.next_life()).life == 2


@quick
@given(st.lists(st.sampled_from(ENTRIES), max_size=12), st.integers(0, 11))
def test_an_entry_that_is_there_twice_says_nothing_new(entries: list[Entry], which: int) -> None:
    """Prevents a checkpoint of unknown fate, sent again, from changing what the log tells."""
    again = [*entries, *entries[which : which + 1]]
    once, twice = log(*entries), log(*again)
    for attribute in ("finished", "order", "undoable", "undone", "to_undo", "undoing"):
        assert getattr(once, attribute) == getattr(twice, attribute)


def test_steps_are_undone_in_the_reverse_order_of_their_start() -> None:
    steps = log(Started(name="a"), Started(name="b"), *done("b", "x"), Started(name="c"))
    assert steps.to_undo == ["c", "b", "a"]
    assert log(*(read(written(e)) for e in steps.entries), Undone(name="c")).to_undo == ["b", "a"]


def test_tries_of_an_undo_are_counted_anew_after_it_was_given_up() -> None:
    tried = UndoFailed(name="a", error="")
    given_up = UndoFailed(name="a", error="", for_good=True)
    assert log(tried, tried).undo_failures("a") == 2
    assert log(tried, given_up).undo_failures("a") == 0
    assert log(tried, given_up, tried).undo_failures("a") == 1
    assert log(tried).undo_failures("b") == 0


# -- the next run ----------------------------------------------------------------------------------


@quick
@given(st.lists(names, unique=True), st.lists(names, unique=True))
def test_a_run_is_accepted_just_if_it_begins_with_what_is_recorded(
    recorded: list[str], called: list[str]
) -> None:
    walk = Walk(log(*done(*recorded)))
    if called[: len(recorded)] == recorded:
        found = [walk.come(name) is not None for name in called]
        walk.end()
        assert found == [number < len(recorded) for number in range(len(called))]
        return
    pairs = zip(recorded, called, strict=False)
    at = next((n for n, (a, b) in enumerate(pairs) if a != b), len(called))
    with pytest.raises(StepsChanged) as raised:
        _walk(walk, called)
    assert raised.value.expected == recorded[at]
    assert raised.value.came == (called[at] if at < len(called) else None)


def _walk(walk: Walk, called: list[str]) -> None:
    for name in called:
        walk.come(name)
    walk.end()


@quick
@given(st.permutations("abc"), st.permutations("abc"))
def test_steps_of_other_tasks_come_in_any_order(recorded: list[str], called: list[str]) -> None:
    walk = Walk(log(Done(name="first"), *done(*recorded, main=False), Done(name="last")))
    assert walk.come("first")
    assert all(walk.come(name, main=False) for name in called)
    assert walk.come("last")
    walk.end()


def test_a_step_of_another_task_that_is_left_out_is_missed_at_the_end() -> None:
    walk = Walk(log(Done(name="first"), *done("part", main=False)))
    walk.come("first")
    with pytest.raises(StepsChanged, match="'part' was recorded next, but the handler ended"):
        walk.end()


def test_a_step_may_move_between_the_handler_and_its_tasks() -> None:
    walk = Walk(log(*done("a", "b"), *done("part", main=False)))
    assert walk.come("part", main=True)
    assert walk.come("a", main=False)
    assert walk.come("b", main=True)
    walk.end()


def test_a_step_that_had_started_has_its_place_and_is_done_again() -> None:
    walk = Walk(log(*done("a"), Started(name="b")))
    walk.come("a")
    with pytest.raises(StepsChanged, match="'b' was recorded next, but 'c' came"):
        walk.come("c")
    assert walk.come("b") is None
    walk.end()


def test_a_step_that_failed_has_no_place() -> None:
    walk = Walk(log(*done("a"), Failed(name="b", error="")))
    assert walk.come("a")
    assert walk.come("c") is None
    walk.end()


@pytest.mark.parametrize("name", ["", " ", "a\x00b", "\ud800", 201 * "x", 7, None])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(StepError, match="a step"):
        Walk(Steps()).come(name)


def test_the_message_about_an_error_is_short() -> None:
    assert len(in_brief(ErrorInfo(type="E", message=9_999 * "x"))) < 1_100
    assert (named([]), named(["a", "b"])) == ("none", "a, b")
