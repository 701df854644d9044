"""Fixtures of the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.observability.log_sink import JOB, Sink
from tests.observability.spans import Spans, trace
from tests.support.inside_a_program import Inside
from windlass.observability.log_context import running
from windlass.observability.logs import configure_logging


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Yield what is traced, by a provider that is this process's for one test."""
    made = Spans()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", made.provider)
    yield made
    made.provider.shutdown()


@pytest.fixture
def lines() -> Sink:
    sink = Sink()
    configure_logging("debug", "json", sink)
    return sink


@pytest.fixture
def console() -> Sink:
    sink = Sink()
    configure_logging("debug", "console", sink)
    return sink


@pytest.fixture
def in_job() -> Iterator[None]:
    token = running.set(Inside(JOB))
    yield
    running.reset(token)
