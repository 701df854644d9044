"""The laws of states: the moves of the design's diagram, and no others."""

from __future__ import annotations

from itertools import product

import pytest

from windlass.core.jobs.moves import FROM, Verb
from windlass.core.jobs.states import FINISHED, LEGAL, LIVE, WAITING, State, may_move

DIAGRAM = {
    (State.SCHEDULED, State.PENDING),  # due
    (State.SCHEDULED, State.CANCELLED),
    (State.PENDING, State.RUNNING),  # claim
    (State.PENDING, State.CANCELLED),
    (State.RUNNING, State.COMPLETED),
    (State.RUNNING, State.CANCELLED),
    (State.RUNNING, State.DEAD),
    (State.RUNNING, State.SCHEDULED),  # retry, snooze
    (State.RUNNING, State.PENDING),  # release, rescue
    (State.DEAD, State.PENDING),  # redrive
    (State.PENDING, State.SCHEDULED),  # park
}

LEADS_TO = {
    Verb.CANCEL: State.CANCELLED,
    Verb.RETRY: State.PENDING,
    Verb.REDRIVE: State.PENDING,
    Verb.PARK: State.SCHEDULED,
    Verb.UNPARK: State.PENDING,
}


def test_states_have_the_names_that_every_store_and_page_uses() -> None:
    assert [state.value for state in State] == [
        "scheduled",
        "pending",
        "running",
        "completed",
        "dead",
        "cancelled",
    ]


@pytest.mark.parametrize(("before", "after"), list(product(State, State)))
def test_a_job_makes_the_moves_of_the_diagram_and_no_others(before: State, after: State) -> None:
    assert may_move(before, after) == ((before, after) in DIAGRAM)


def test_every_state_is_either_live_or_finished() -> None:
    assert set(State) == LIVE | FINISHED
    assert not LIVE & FINISHED
    assert LIVE - {State.RUNNING} == WAITING


def test_every_state_says_where_it_may_lead() -> None:
    assert set(LEGAL) == set(State)


@pytest.mark.parametrize("state", sorted(LIVE))
def test_cancel_works_from_every_live_state(state: State) -> None:
    assert may_move(state, State.CANCELLED)
    assert state in FROM[Verb.CANCEL]


@pytest.mark.parametrize("state", [State.COMPLETED, State.CANCELLED])
def test_nothing_leads_out_of_completed_and_cancelled_but_a_purge(state: State) -> None:
    assert not any(may_move(state, other) for other in State)
    assert [verb for verb, states in FROM.items() if state in states] == [Verb.PURGE]


@pytest.mark.parametrize(
    ("verb", "before"), [(verb, before) for verb in LEADS_TO for before in sorted(FROM[verb])]
)
def test_every_verb_leads_to_a_state_that_the_diagram_allows(verb: Verb, before: State) -> None:
    after = LEADS_TO[verb]
    assert before is after or may_move(before, after)


def test_every_verb_says_from_where_it_works() -> None:
    assert set(FROM) == set(Verb)
