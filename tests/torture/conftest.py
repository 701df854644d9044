"""Puts the repository on the path, so that tests and their children import the same harness."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from tests.torture.harness import Yard  # noqa: E402 - found by the path above.


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    """Give a test a database file, a ledger and worker processes, and leave none of them behind."""
    yard = Yard(tmp_path)
    try:
        yield yard
    finally:
        yard.close()
