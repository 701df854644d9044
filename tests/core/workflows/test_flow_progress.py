"""How a flow goes on: whatever order ends are heard in, and however often, it comes to the same."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.workflows.flow_run import (
    CANCELLED,
    COMPLETED,
    DEAD,
    FLOW,
    Run,
    chart_of,
    letters,
    node,
)
from windlass.core.jobs.states import State
from windlass.core.records import Json
from windlass.core.workflows.flow_graph import POLICIES, Chart, Edge, Node, OnFailure, edges_of
from windlass.core.workflows.flow_progress import advance, begun
from windlass.core.workflows.flow_result import FlowResult, concluded

SEEDS = st.integers(0, 2**32)
ENDS = (COMPLETED, DEAD, CANCELLED)


# -- one after the other, and many before one ------------------------------------------------------


def test_a_child_is_freed_by_the_last_of_its_parents() -> None:
    run = Run(chart_of(node("a"), node("b"), node("c", Edge(1, 2))))
    assert run.free == {1, 2}
    run.end((1, COMPLETED))
    assert run.free == {2}
    run.end((2, COMPLETED))
    assert run.free == {3}
    assert not run.is_over()
    run.end((3, COMPLETED))
    assert run.is_over()


def test_many_are_freed_by_one_name() -> None:
    run = Run(chart_of(node("a"), *[node("b", Edge(1, 1))] * 5))
    step = run.end((1, COMPLETED))
    assert step.freed == [f"flow:{FLOW}:2"]
    assert run.free == {2, 3, 4, 5, 6}


def test_news_delivered_twice_counts_once() -> None:
    run = Run(chart_of(node("a"), node("b"), node("c", Edge(1, 2))))
    run.end((1, COMPLETED), (1, COMPLETED))
    run.hear([(1, COMPLETED)])
    assert run.free == {2}
    run.end((2, COMPLETED))
    before = run.record
    step = run.hear([(1, COMPLETED), (2, COMPLETED), (2, DEAD)])
    assert (step.freed, step.cancelled, run.record) == ([], {}, before)


def test_a_number_outside_the_graph_belongs_to_no_job() -> None:
    run = Run(chart_of(node("a")))
    run.hear([(9, COMPLETED), (1, State.PENDING)])
    assert letters(run) == ".f"


def test_a_flow_that_ended_is_forgotten() -> None:
    run = Run(chart_of(node("a")))
    run.end((1, COMPLETED))
    assert not run.is_forgotten(), "its own job has yet to tell what came of it"
    run.end((0, COMPLETED))
    assert run.is_forgotten()


# -- a parent that failed --------------------------------------------------------------------------


@pytest.mark.parametrize("state", [DEAD, CANCELLED])
def test_stop_cancels_the_child_and_what_comes_after_it(state: State) -> None:
    run = Run(chart_of(node("a"), node("b", Edge(1, 1)), node("c", Edge(2, 2)), node("d")))
    step = run.end((1, state))
    assert list(step.cancelled or {}) == [2, 3]
    assert (step.cancelled or {})[2] == f"'a' (job 1 of the flow) is {state}"
    assert "'b' (job 2 of the flow) is cancelled" in (step.cancelled or {})[3]
    assert run.free == {4}
    run.end((4, COMPLETED))
    assert run.is_over()
    run.hear(run.unheard)
    assert letters(run) == f"f{'d' if state is DEAD else 'x'}xxc"


def test_a_child_is_cancelled_as_soon_as_it_can_be_known() -> None:
    run = Run(chart_of(node("a"), node("b"), node("c", Edge(1, 2))))
    step = run.end((2, DEAD))
    assert list(step.cancelled or {}) == [3]
    assert run.free == {1}


@pytest.mark.parametrize("state", [DEAD, CANCELLED])
def test_go_on_runs_the_child_all_the_same(state: State) -> None:
    run = Run(chart_of(node("a"), node("b"), node("c", Edge(1, 2, "continue"))))
    run.end((1, state))
    assert run.free == {2}
    run.end((2, COMPLETED))
    assert run.free == {3}


def test_each_edge_has_its_own_policy() -> None:
    nodes = [node("a"), node("b"), node("c", Edge(1, 1), Edge(2, 2, "continue"))]
    run = Run(chart_of(*nodes))
    run.end((2, DEAD))
    assert run.free == {1}
    run.end((1, COMPLETED))
    assert run.free == {3}
    run = Run(chart_of(*nodes))
    assert list(run.end((1, DEAD)).cancelled or {}) == [3]


def test_a_child_that_an_operator_cancelled_is_not_freed() -> None:
    run = Run(chart_of(node("a"), *[node("b", Edge(1, 1))] * 3, node("c", Edge(2, 4, "continue"))))
    run.end((3, CANCELLED))
    run.end((1, COMPLETED))
    assert run.free == {2, 4}
    run.end((2, COMPLETED), (4, COMPLETED))
    assert run.free == {5}


# -- what came of it -------------------------------------------------------------------------------


def _summed(run: Run) -> tuple[str, str]:
    assert run.is_over()
    assert run.record is not None
    conclusion = concluded(run.chart, run.record)
    return conclusion.ending, conclusion.reason


def test_a_flow_is_completed_if_all_of_its_jobs_are() -> None:
    run = Run(chart_of(node("a"), node("b", Edge(1, 1))))
    run.end((1, COMPLETED))
    run.end((2, COMPLETED))
    assert _summed(run) == ("completed", "")


def test_a_failure_is_excused_where_every_child_goes_on() -> None:
    run = Run(chart_of(node("a"), node("b"), node("c", Edge(1, 2, "continue"))))
    run.end((1, DEAD), (2, CANCELLED))
    run.end((3, COMPLETED))
    assert _summed(run) == ("completed", "")
    assert run.record is not None
    result = concluded(run.chart, run.record).result
    assert result == FlowResult(completed=1, dead=1, cancelled=1)


def test_a_failure_that_is_not_excused_is_reported() -> None:
    nodes = [node("a"), node("b", Edge(1, 1, "continue")), node("c", Edge(1, 1))]
    run = Run(chart_of(*nodes))
    run.end((1, DEAD))
    run.end((2, COMPLETED))
    assert _summed(run) == ("stopped", "2 of 3 jobs did not complete: a (1), c (3)")


def test_a_leaf_is_excused_if_the_flow_goes_on() -> None:
    endings: dict[OnFailure, str] = {"continue": "completed", "cancel": "stopped"}
    for on_failure, ending in endings.items():
        run = Run(chart_of(*[node("a")] * 5, on_failure=on_failure))
        run.end(*((number, DEAD) for number in range(1, 6)))
        assert _summed(run)[0] == ending


# -- whatever happens ------------------------------------------------------------------------------


def chart_by(chance: random.Random) -> Chart:
    """Make any graph; by a seed, since hypothesis takes its time for every choice of its own."""
    nodes: list[Node] = []
    for number in range(1, chance.randint(1, 12) + 1):
        parents = sorted(chance.sample(range(1, number), chance.randint(0, number - 1)))
        policy: OnFailure = chance.choice(POLICIES)
        edges = edges_of((parent, policy) for parent in parents)
        nodes.append(node(chance.choice("ab"), *edges, undo=chance.choice(["", "undo"])))
    last = [node("tell")] * chance.randint(0, 1)
    return chart_of(*nodes, last=last, on_failure=chance.choice(POLICIES))


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_every_flow_ends_and_no_child_runs_before_its_parents_have_ended(seed: int) -> None:
    chance = random.Random(seed)
    chart = chart_by(chance)
    run = Run(chart)
    ended: dict[int, State] = {}
    while not run.is_over():
        assert run.free or run.unheard, f"it hangs: {run.record}"
        for number in run.free:
            _check_turn(chart, number, ended)
        some = chance.sample(sorted(run.free), chance.randint(min(1, len(run.free)), len(run.free)))
        ends = [(number, chance.choice(ENDS)) for number in some]
        ended |= dict(ends)
        heard, run.unheard = run.unheard, []
        ended |= dict(heard)
        news = [*ends, *heard, *chance.sample(sorted(ended.items()), min(2, len(ended)))]
        chance.shuffle(news)
        run.free -= set(some)
        run.hear(news)
        ended |= dict(run.unheard)
    assert not run.free
    # Those whose own undo is dead hold back the undos above them; nothing else may be left.
    left = {number for number in run.waiting if number <= chart.size}
    assert not left


def _check_turn(chart: Chart, number: int, ended: dict[int, State]) -> None:
    if number <= chart.size:
        stage = chart.jobs[chart.stage_of(number)]
        for edge in stage.after:
            states = [ended[parent] for parent in range(edge.first, edge.last + 1)]
            assert edge.on_failure == "continue" or set(states) == {COMPLETED}
        return
    for stage, depth in zip(chart.jobs, chart.depths, strict=True):
        if stage.undo <= number < stage.undo + stage.count:
            assert ended[stage.first + number - stage.undo] is COMPLETED
            below = [
                undo
                for other, deeper in zip(chart.jobs, chart.depths, strict=True)
                if other.undo and deeper > depth
                for undo, undone in enumerate(range(other.first, other.end), start=other.undo)
                if ended[undone] is not DEAD
            ]
            assert all(undo in ended for undo in below)


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_the_order_of_news_does_not_matter(seed: int) -> None:
    chance = random.Random(seed)
    chart = chart_by(chance)
    roots = sorted(Run(chart).free)
    ends = [(number, chance.choice((COMPLETED, DEAD))) for number in roots]
    together = advance(chart, FLOW, None, ends)
    shuffled = ends * 2
    chance.shuffle(shuffled)
    record: Json | None = begun(chart)
    freed: set[str] = set()
    for each in shuffled:
        step = advance(chart, FLOW, record, [each])
        record = step.record
        freed |= set(step.freed)
    assert record is not None
    assert together.record is not None
    if not (together.record["undoing"] or record["undoing"]):
        assert record["states"] == together.record["states"]
        assert freed == set(together.freed)


def test_ten_thousand_ends_are_one_change() -> None:
    chart = chart_of(*[node("a")] * 10_000, node("b", Edge(1, 10_000)))
    ends = [(number, COMPLETED) for number in range(1, 10_001)]
    step = advance(chart, FLOW, None, ends)
    assert step.freed == [f"flow:{FLOW}:10001"]
    assert step.record is not None
    assert step.record["states"] == "." + "c" * 10_000 + "f"


def test_many_are_cancelled_in_several_changes() -> None:
    run = Run(chart_of(node("a"), *[node("b", Edge(1, 1))] * 1_200, node("c", Edge(2, 1_201))))
    step = run.end((1, DEAD))
    assert len(step.cancelled or {}) == 500
    assert step.more
    assert not run.is_over(), "some are still parked"
    step = run.hear(run.unheard)
    assert (len(step.cancelled or {}), step.more) == (500, True)
    step = run.hear([])
    assert (len(step.cancelled or {}), step.more) == (201, False)
    assert run.is_over()
    assert list(run.waiting) == []


def test_a_cancelled_flow_is_remembered_until_all_of_it_is_cancelled() -> None:
    run = Run(chart_of(*[node("a")] * 700))
    step = run.end((0, CANCELLED))
    assert (len(step.cancelled or {}), step.more) == (500, True)
    assert not run.is_forgotten()
    run.hear([(700, COMPLETED)])
    assert run.is_forgotten()
    assert len(run.unheard) == 699, "the last one completed before it could be cancelled"
