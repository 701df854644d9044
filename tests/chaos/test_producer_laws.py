"""The law about killed producers, fed with good and bad histories."""

from __future__ import annotations

from tests.chaos.histories import completed, history, job
from windlass.chaos.laws.history import Strike
from windlass.chaos.laws.producers import calls_of_killed_producers_are_whole as law
from windlass.chaos.ledger import Entry

ONE, TWO, THREE = job(1), job(2), job(3)
PRODUCER, SURVIVOR = 201, 202
KILL = Strike(number=1, fault="kill-producer", began=5.0, ended=5.0, pids=(PRODUCER,))


def offered(call: int, *jobs: str, pid: int = PRODUCER) -> list[Entry]:
    return [Entry("offered", call, pid, each, 0, "plain", str(call)) for each in jobs]


def acknowledged(call: int, *jobs: str, pid: int = PRODUCER) -> list[Entry]:
    said = [Entry("accepted", call + 0.5, pid, each, 0, "plain") for each in jobs]
    return [*offered(call, *jobs, pid=pid), *said]


def test_a_call_in_flight_may_have_been_carried_out_or_not() -> None:
    none = law(history(KILL, acknowledged(1, ONE), offered(2, TWO, THREE), completed(ONE)))
    both = law(
        history(
            *(KILL, acknowledged(1, ONE), offered(2, TWO, THREE)),
            *(completed(ONE), completed(TWO), completed(THREE)),
        )
    )

    assert not none.violations
    assert not both.violations
    assert none.note.startswith("1 killed, 1 of them during a call; 0 of these")
    assert both.note.startswith("1 killed, 1 of them during a call; 1 of these")


def test_a_call_that_was_carried_out_in_part_is_accused() -> None:
    found = law(history(KILL, offered(1, ONE, TWO), completed(TWO)))

    assert [each.problem for each in found.violations] == [
        "1 of the 2 jobs of one call are there, and 0 were acknowledged"
    ]


def test_a_job_that_a_killed_producer_had_acknowledged_is_there() -> None:
    found = law(history(KILL, acknowledged(1, ONE)))

    assert [each.problem for each in found.violations] == [
        "0 of the 1 jobs of one call are there, and 1 were acknowledged"
    ]


def test_a_producer_that_nobody_killed_is_no_evidence() -> None:
    found = law(history(KILL, acknowledged(1, ONE, pid=SURVIVOR), completed(ONE)))

    assert not found.checked
    assert not found.note
