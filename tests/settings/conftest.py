"""Fixtures of the tests in this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.settings.loads import Load


@pytest.fixture
def load(tmp_path: Path) -> Load:
    return Load(tmp_path)
