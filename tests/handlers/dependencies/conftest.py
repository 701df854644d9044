"""Fixtures of the tests in this folder."""

from __future__ import annotations

import pytest

from tests.handlers.dependencies.sessions import heard


@pytest.fixture(autouse=True)
def silence() -> None:
    """Let every test hear only what it caused itself."""
    heard.clear()
