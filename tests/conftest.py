"""Lets pytest show both sides of comparisons in the laws, whoever imports them first."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("windlass.testing.conformance")
