"""Shows both sides of comparisons in the laws, and says which stores a test is tried on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import Any

import hypothesis
import pytest

from tests.support.app_on_store import bed
from tests.support.postgres.fixtures import postgres_scratches, postgres_server
from tests.support.redis_fixtures import redis_server
from windlass.worker.engine import start_pace

__all__ = ["bed", "postgres_scratches", "postgres_server", "redis_server"]

pytest.register_assert_rewrite("windlass.testing.conformance")
# By default an example may take 200 ms, which says nothing about us where others use the machine.
hypothesis.settings.register_profile("any_machine", deadline=None)
hypothesis.settings.load_profile("any_machine")
_PLACES = ("bed", "yard", "postgres_server")
"""The parameters that say where a test is tried: on which store, or on which server."""
_RANKS = {"memory": 0, "sqlite": 1, "redis": 2, "postgres": 3}
"""Of several stores, a long test of a landing is tried on the last, which scales out."""
_USUAL = {"bed": "memory", "yard": "postgres"}
"""The store for a quick test that names none: the fastest, or the one that most processes share."""
_Tried = list[tuple[int, pytest.Item]]


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers in this process begin late: a busy machine would have jobs given back unbegun."""
    monkeypatch.setattr(start_pace, "MAX_START_SECONDS", 10.0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make torture` what is tried elsewhere as well.

    That the stores are alike is for the laws and the model test to prove. So a quick test is tried
    on one store, or on those that its mark `stores` names, and a long one where it counts for most.
    A test that has no sibling elsewhere is never marked, wherever it is tried.
    """
    siblings: dict[tuple[str, Hashable], _Tried] = defaultdict(list)
    for item in items:
        for place, rank, alike in _tried(item):
            siblings[place, alike].append((rank, item))
    for (place, _), tried in siblings.items():
        kept = _kept(place, tried)
        for rank, item in tried:
            if rank not in kept:
                if place in _USUAL:
                    item.add_marker(pytest.mark.long)
                if item.get_closest_marker("long"):
                    item.add_marker(pytest.mark.again)


def _kept(place: str, tried: _Tried) -> set[int]:
    """Return the ranks of the places where a test is tried before every landing."""
    quick = {rank for rank, item in tried if not item.get_closest_marker("long")}
    if place not in _USUAL or not quick:
        return {max(rank for rank, _ in tried)}
    named = tried[0][1].get_closest_marker("stores")
    wanted = {_RANKS[name] for name in (named.args if named else [_USUAL[place]])}
    return wanted & {rank for rank, _ in tried} or {min(quick)}


def _tried(item: pytest.Item) -> Iterator[tuple[str, int, Hashable]]:
    """Tell the places of a test: how much each counts, and what its siblings elsewhere share."""
    callspec: Any = getattr(item, "callspec", None)
    for place in _PLACES:
        if callspec is not None and place in callspec.params:
            value = callspec.params[place]
            # By identity: of a value that is tried with several others, there is one.
            others = {(name, id(each)) for name, each in callspec.params.items() if name != place}
            test = item.nodeid.partition("[")[0]
            yield place, _RANKS.get(value, value), (test, frozenset(others))
