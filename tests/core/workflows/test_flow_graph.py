"""Graphs of flows: stages, numbers, headers, and what could never end."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import FlowInvalid
from windlass.core.jobs.ids import flow_id
from windlass.core.workflows.flow_graph import (
    MOST_JOBS,
    Chart,
    Edge,
    Graph,
    Node,
    OnFailure,
    Stage,
    built,
    checked,
    edges_of,
    numbers_in,
    numbers_of,
    topic_of,
    undo_wait_of,
    wait_of,
)

FLOW = flow_id(1_700_000_000_000, 42)


def node(name: str, *after: Edge, undo: str = "") -> Node:
    return Node(name=name, kind=name, after=after, undo=undo)


def test_alike_jobs_in_a_row_are_one_stage() -> None:
    parts = [node("part", Edge(1, 1))] * 10_000
    graph = built("nightly", [node("extract"), *parts, node("load", Edge(2, 10_001))])
    assert [(stage.name, stage.first, stage.count) for stage in graph.stages] == [
        ("extract", 1, 1),
        ("part", 2, 10_000),
        ("load", 10_002, 1),
    ]
    assert len(msgspec.json.encode(graph)) < 300


def test_jobs_that_wait_for_others_or_are_undone_otherwise_are_stages_of_their_own() -> None:
    nodes = [node("a"), node("a", Edge(1, 1)), node("a", Edge(1, 1), undo="b"), node("a")]
    assert [stage.count for stage in built("x", nodes).stages] == [1, 1, 1, 1]


def test_numbers_go_from_the_jobs_to_their_undos_to_the_last() -> None:
    nodes = [node("a", undo="not_a"), node("b"), node("c", undo="not_c"), node("c", undo="not_c")]
    chart = Chart(built("x", nodes, [node("tell")]))
    assert [(stage.first, stage.undo) for stage in chart.jobs] == [(1, 5), (2, 0), (3, 6)]
    assert [stage.first for stage in chart.last] == [8]
    assert (chart.size, chart.undos, chart.total) == (4, 3, 8)
    names = [chart.name_of(number) for number in range(1, 9)]
    assert names == ["a", "b", "c", "c", "undo of a", "undo of c", "undo of c", "tell"]


def test_a_graph_survives_json() -> None:
    graph = built("x", [node("a", undo="b"), node("c", Edge(1, 1, "compensate"))], [node("d")])
    assert msgspec.json.decode(msgspec.json.encode(graph), type=Graph) == graph


def test_depth_is_the_longest_way_from_the_top() -> None:
    nodes = [
        node("a"),
        node("b", Edge(1, 1)),
        node("c", Edge(1, 2)),
        node("d"),
        node("e", Edge(4, 4)),
    ]
    assert Chart(built("x", nodes)).depths == [0, 1, 2, 0, 1]


def test_heirs_are_found_by_narrow_and_by_wide_ranges() -> None:
    nodes = [node(f"n{number}") for number in range(1, 51)]
    nodes += [node("few", Edge(2, 3)), node("many", Edge(1, 50))]
    chart = Chart(built("x", nodes))

    def heirs(number: int) -> list[str]:
        return [stage.name for stage in chart.heirs({chart.stage_of(number)})]

    assert heirs(2) == ["few", "many"]
    assert heirs(9) == ["many"]
    assert chart.heirs(set()) == []


def test_the_waiting_for_of_jobs_distinguishes_stages() -> None:
    chart = Chart(built("x", [node("a"), node("b", Edge(1, 1))], [node("c")]))
    names = [wait_of(FLOW, stage) for stage in chart.graph.stages]
    assert names == [None, f"flow:{FLOW}:2", f"flow:{FLOW}:last"]
    assert len({*names, topic_of(FLOW), undo_wait_of(FLOW, 0), undo_wait_of(FLOW, 2)}) == 6


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([], "has no jobs"),
        ([node("a", Edge(1, 1))], "depends on itself"),
        ([node("a", Edge(2, 2)), node("b")], "depends on itself"),
        ([node("a"), node("b", Edge(0, 1))], "depends on jobs that are not in this flow"),
        ([node("a"), node("b", Edge(1, 1), Edge(1, 1))], "twice"),
        ([node("a"), node("a"), node("b", Edge(2, 2), Edge(1, 2))], "twice"),
        ([node("")], "must have a name"),
        ([node("a\nb")], "printable"),
        ([node("a")] * (MOST_JOBS + 1), "limit is 100,000"),
        ([node("a", undo="b")] * (MOST_JOBS // 2 + 1), "limit is 100,000"),
    ],
)
def test_graphs_that_could_not_end_are_refused(nodes: list[Node], why: str) -> None:
    with pytest.raises(FlowInvalid, match=why):
        built("x", nodes)


def test_too_many_edges_are_refused() -> None:
    odd = tuple(Edge(number, number) for number in range(1, 2_001, 2))
    with pytest.raises(FlowInvalid, match="more than 200,000 edges"):
        built("x", [*[node("a")] * 2_000, *(node(f"b{number}", *odd) for number in range(201))])


def test_numbers_from_outside_are_checked() -> None:
    with pytest.raises(FlowInvalid, match="consecutively"):
        checked(Graph(name="x", stages=(Stage(name="a", kind="a", first=2),)))
    with pytest.raises(FlowInvalid, match="consecutively"):
        checked(Graph(name="x", stages=(Stage(name="a", kind="a", first=1, count=0),)))
    with pytest.raises(FlowInvalid, match="must have a name"):
        checked(Graph(name=" ", stages=()))


# -- headers ---------------------------------------------------------------------------------------


def test_parents_in_a_row_with_one_policy_are_one_edge() -> None:
    parents: list[tuple[int, OnFailure]] = [
        (5, "cancel"),
        (6, "cancel"),
        (7, "continue"),
        (1, "continue"),
    ]
    edges = edges_of(parents)
    assert edges == (Edge(5, 6), Edge(7, 7, "continue"), Edge(1, 1, "continue"))
    assert numbers_of(edges) == "5-6,7,1"


@given(st.lists(st.integers(1, 500), unique=True))
def test_a_header_tells_parents_in_their_order(numbers: list[int]) -> None:
    assert numbers_in(numbers_of(edges_of((number, "cancel") for number in numbers))) == numbers


@pytest.mark.parametrize("header", ["x", "1-", "3-1", "0", "-1", "1-100001", "1-99999,1-99999"])
def test_headers_from_outside_are_checked(header: str) -> None:
    with pytest.raises(ValueError):
        numbers_in(header)
