"""Fixtures of the tests in this folder."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.handlers.job_transactions.orders import migrate_with_orders
from tests.support.app_on_store import Bed
from tests.support.postgres.scratch import Scratches


@pytest.fixture
def bed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_scratches: Scratches
) -> Iterator[Bed]:
    monkeypatch.chdir(tmp_path)
    made = Bed("postgres", tmp_path, postgres_scratches, prepare=migrate_with_orders)
    yield made
    asyncio.run(made.close())
