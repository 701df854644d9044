"""Fixtures of the tests in this folder."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.app_on_store import Bed


@pytest.fixture
def nursery(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module of handlers of the test's own, which children can import as well."""
    name = f"nursery_{uuid4().hex}"
    text = (Path(__file__).parent / "isolated_program.py").read_text()
    (bed.directory / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(bed.directory)
    module = importlib.import_module(name)
    module.app.configure(url=bed.url)
    bed._made.append(module.app)
    yield module
    del sys.modules[name]
