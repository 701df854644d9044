"""A flow that fails is undone: children before their parents, whatever is redriven or cancelled."""

from __future__ import annotations

from tests.core.workflows.flow_run import CANCELLED, COMPLETED, DEAD, Run, chart_of, letters, node
from windlass.core.workflows.flow_graph import Edge
from windlass.core.workflows.flow_result import FlowResult, concluded

# -- compensation ----------------------------------------------------------------------------------


def _order() -> Run:
    """Reserve, then charge and pack side by side, then check, then ship; and tell in any case."""
    return Run(
        chart_of(
            node("reserve", undo="release"),
            node("charge", Edge(1, 1, "compensate"), undo="refund"),
            node("pack", Edge(1, 1, "compensate"), undo="unpack"),
            node("check", Edge(2, 3, "compensate")),
            node("ship", Edge(4, 4, "compensate"), undo="recall"),
            last=[node("tell")],
            on_failure="compensate",
        )
    )


RELEASE, REFUND, UNPACK, RECALL, TELL = range(6, 11)


def _failing_at_the_end() -> Run:
    run = _order()
    for number in range(1, 5):
        run.end((number, COMPLETED))
    run.end((5, DEAD))
    return run


def test_compensation_undoes_children_before_their_parents() -> None:
    run = _failing_at_the_end()
    assert run.free == {REFUND, UNPACK}, "side by side as they were done; ship did nothing"
    run.end((UNPACK, COMPLETED))
    assert run.free == {REFUND}
    run.end((REFUND, COMPLETED))
    assert run.free == {RELEASE}
    run.end((RELEASE, COMPLETED))
    assert run.free == {TELL}
    assert not run.is_over()
    run.end((TELL, COMPLETED))
    assert run.is_over()
    assert run.record is not None
    conclusion = concluded(run.chart, run.record)
    assert conclusion.ending == "undone"
    assert conclusion.reason == "undone: 'ship' (job 5 of the flow) is dead"
    assert conclusion.result == FlowResult(completed=5, dead=1, undone=3)


def test_compensation_waits_for_what_runs_and_cancels_what_waits() -> None:
    run = _order()
    run.end((1, COMPLETED))
    step = run.end((2, DEAD))
    assert list(step.cancelled or {}) == [4, 5]
    assert run.free == {3}, "what is under way comes to its end, and is undone then"
    step = run.end((3, COMPLETED))
    assert set(step.cancelled or {}) == {RECALL}
    assert run.free == {UNPACK}
    run.end((UNPACK, COMPLETED))
    assert run.free == {RELEASE}
    step = run.end((RELEASE, COMPLETED))
    assert set(step.cancelled or {}) == {REFUND}, "charge might have been redriven until then"
    assert run.free == {TELL}


def test_nothing_is_undone_of_a_flow_that_completes() -> None:
    run = _order()
    for number in range(1, 6):
        step = run.end((number, COMPLETED))
    assert step.cancelled == dict.fromkeys(range(6, 10), "nothing to undo")
    assert run.free == {TELL}


def test_a_stopped_branch_of_a_flow_is_not_undone() -> None:
    nodes = [node("a", undo="z"), node("b", Edge(1, 1)), node("c", Edge(2, 2, "cancel"))]
    run = Run(chart_of(*nodes))
    run.end((1, COMPLETED))
    step = run.end((2, DEAD))
    assert set(step.cancelled or {}) == {3, 4}
    assert run.is_over()


def test_an_undo_that_is_dead_holds_the_others_until_it_is_redriven() -> None:
    run = _failing_at_the_end()
    run.end((UNPACK, DEAD))
    assert run.free == {REFUND}
    run.end((REFUND, COMPLETED))
    assert run.free == {TELL}, "release waits for unpack, but the flow does not"
    run.end((TELL, COMPLETED))
    assert run.is_over()
    assert run.record is not None
    conclusion = concluded(run.chart, run.record)
    assert conclusion.ending == "undo_failed"
    told = "compensation failed: undo of pack (8) dead; 1 undone, 1 left"
    assert conclusion.reason == told
    run.end((0, DEAD))
    run.end((UNPACK, COMPLETED))
    assert run.free == {RELEASE}
    run.end((RELEASE, COMPLETED))
    assert run.revived == 1, "the flow's own job has a better end to tell"
    assert concluded(run.chart, run.record).ending == "undone"


def test_an_undo_that_somebody_cancelled_holds_up_no_other() -> None:
    run = _failing_at_the_end()
    run.end((UNPACK, CANCELLED), (REFUND, COMPLETED))
    assert run.free == {RELEASE}


def test_a_completed_job_whose_undo_was_cancelled_is_not_undone() -> None:
    run = _failing_at_the_end()
    run.end((UNPACK, CANCELLED), (REFUND, COMPLETED))
    run.end((RELEASE, DEAD))
    run.end((TELL, COMPLETED))
    assert _failure(run) == "undo of reserve (6) dead, undo of pack (8) cancelled; 1 undone, 0 left"
    run.end((0, DEAD))
    run.end((RELEASE, COMPLETED))
    assert run.revived == 1
    assert _failure(run) == "undo of pack (8) cancelled; 2 undone, 0 left"


def _failure(run: Run) -> str:
    assert run.record is not None
    conclusion = concluded(run.chart, run.record)
    assert conclusion.ending == "undo_failed"
    return conclusion.reason.removeprefix("compensation failed: ")


# -- cancelling and redriving ----------------------------------------------------------------------


def test_cancelling_the_flow_cancels_all_that_has_not_ended() -> None:
    run = _order()
    run.end((1, COMPLETED))
    step = run.end((0, CANCELLED))
    assert step.cancelled == dict.fromkeys(range(2, 11), "its flow was cancelled")
    assert run.record is None


def test_a_member_that_is_redriven_changes_nothing_that_was_decided() -> None:
    run = Run(chart_of(node("a"), node("b", Edge(1, 1)), node("c")))
    run.end((1, DEAD))
    step = run.end((1, COMPLETED))
    assert (step.freed, step.cancelled) == ([], {})
    assert letters(run) == ".cxf"
    run.end((3, COMPLETED))
    assert run.is_over()


def test_a_redriven_member_that_completes_in_time_is_undone_with_the_others() -> None:
    run = _order()
    run.end((1, COMPLETED))
    run.end((2, DEAD))
    run.end((2, COMPLETED))
    run.end((3, COMPLETED))
    assert run.free == {REFUND, UNPACK}


def test_a_member_is_undone_that_completes_while_others_are_being_undone() -> None:
    run = Run(
        chart_of(
            node("a", undo="u"),
            node("b", undo="v"),
            node("c", Edge(1, 1), undo="w"),
            on_failure="compensate",
        )
    )
    run.end((1, COMPLETED))
    run.end((2, DEAD))
    run.end((3, COMPLETED))
    assert run.free == {6}
    run.end((6, COMPLETED))
    assert run.free == {4}, "that of b waits, although it had its turn with that of a"
    run.end((2, COMPLETED))
    assert run.free == {4}
    run.end((4, COMPLETED))
    assert run.free == {5}
    assert not run.is_over()
    run.end((5, COMPLETED))
    assert run.is_over()
    assert run.record is not None
    assert concluded(run.chart, run.record).result == FlowResult(completed=3, undone=3)


def test_redriving_a_member_of_an_undone_flow_is_reported() -> None:
    run = Run(chart_of(node("a", undo="u"), node("b", undo="v"), on_failure="compensate"))
    run.end((1, COMPLETED), (2, DEAD))
    step = run.end((3, COMPLETED))
    assert step.cancelled == {4: "the job it would undo did not complete"}
    assert run.is_over()
    run.end((2, COMPLETED))
    assert _failure(run) == "undo of b (4) cancelled; 1 undone, 0 left"


def test_many_undos_of_the_dead_are_held_before_others_are_freed() -> None:
    many = 1_200
    run = Run(chart_of(*[node("a", undo="u")] * many, on_failure="compensate"))
    step = run.end((1, COMPLETED), *((number, DEAD) for number in range(2, many + 1)))
    changes = 1
    while step.more:
        assert not run.free
        step = run.hear([])
        changes += 1
    assert (changes, run.free) == (3, {many + 1})
    assert not run.is_over()


def test_many_undos_of_the_cancelled_are_gone_before_others_are_freed() -> None:
    many = 1_200
    run = Run(chart_of(*[node("a", undo="u")] * many, on_failure="compensate"))
    step = run.end((1, COMPLETED), *((number, CANCELLED) for number in range(2, many + 1)))
    while step.more:
        assert not run.free
        step = run.hear([])
    assert run.free == {many + 1}


def test_a_death_that_is_heard_together_with_the_redrive_decides_nothing() -> None:
    run = Run(chart_of(node("a", undo="u"), node("b"), on_failure="compensate"))
    step = run.end((1, DEAD), (1, COMPLETED), (2, COMPLETED))
    assert step.cancelled == {3: "nothing to undo"}
    assert run.is_over()
    run = Run(chart_of(node("a", undo="u"), node("b"), on_failure="compensate"))
    run.end((2, DEAD), (1, DEAD), (1, COMPLETED))
    assert run.free == {3}, "another one failed all the same"
