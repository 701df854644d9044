"""Lets pytest show both sides of comparisons in the laws, and tells what is tried a second time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import Any

import pytest

pytest.register_assert_rewrite("windlass.testing.conformance")
_PLACES = ("bed", "yard", "postgres_server")
"""The parameters that say where a test is tried: on which store, or on which server."""
_RANKS = {"memory": 0, "sqlite": 1, "postgres": 2}
"""Of several stores, a landing is tried on the last, which is the one that scales out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is long, and tried in a place that counts for more as well.

    A test that has no such sibling is never marked, wherever it is tried.
    """
    siblings: dict[Hashable, list[tuple[int, pytest.Item]]] = defaultdict(list)
    for item in items:
        for rank, alike in _tried(item):
            siblings[alike].append((rank, item))
    for tried in siblings.values():
        best = max(rank for rank, _ in tried)
        for rank, item in tried:
            if rank < best and item.get_closest_marker("long"):
                item.add_marker(pytest.mark.again)


def _tried(item: pytest.Item) -> Iterator[tuple[int, Hashable]]:
    """Tell the places of a test: how much each counts, and what its siblings elsewhere share."""
    callspec: Any = getattr(item, "callspec", None)
    for place in _PLACES:
        if callspec is not None and place in callspec.params:
            value = callspec.params[place]
            # By identity: of a value that is tried with several others, there is one.
            others = {(name, id(each)) for name, each in callspec.params.items() if name != place}
            test = item.nodeid.partition("[")[0]
            yield _RANKS.get(value, value), (test, place, frozenset(others))
