"""Fixtures of the tests in this folder."""

from __future__ import annotations

import pytest

from tests.app.transaction_shop import Shop
from tests.support.app_on_store import Bed


@pytest.fixture
def shop(bed: Bed) -> Shop:
    return Shop(bed)
