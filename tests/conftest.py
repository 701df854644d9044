"""Lets pytest show both sides of comparisons in the laws, and tells what is tried a second time."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("windlass.testing.conformance")
_SECOND = ("[postgres", "-postgres", "[16-")
"""What is in the names of long tests that others try on a file, or on the latest server."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is tried on another store or server as well."""
    for item in items:
        if item.get_closest_marker("long") and any(each in item.nodeid for each in _SECOND):
            item.add_marker(pytest.mark.again)
