"""The examples of streams, webhooks, imports and FastAPI run, and do what their READMEs say."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from examples.notifier.partner import Partner
from examples.webhook_sender.app import app, deliver, publish
from tests.examples.test_examples import ROOT, run
from windlass.testing import Travel, travel_fixture

t = travel_fixture(app)


@pytest.fixture
def partner() -> Iterator[Partner]:
    with Partner() as made:
        yield made


def test_an_answer_is_streamed_and_its_tool_used_once(tmp_path: Path) -> None:
    lines = run("agent_stream", tmp_path)
    assert lines[0] == "[looking up rope]"
    assert "[attempt 2: keep 1 chunks, discard the others]" in lines
    assert lines[-2:] == ["result: We have 12 pieces of rope in stock.", "uses of the tool: 1"]


def test_an_import_adds_up_its_parts_and_reports_progress(tmp_path: Path) -> None:
    lines = run("csv_import", tmp_path)
    assert lines[-1] == "orders.csv: 998 orders of 1497.00 in 10 parts; bad lines: [205, 778]"
    assert all(line.startswith("progress: ") for line in lines[:-1])


def test_a_report_is_ordered_watched_and_fetched(tmp_path: Path) -> None:
    assert run("fastapi_service", tmp_path) == [
        "ordered: 202",
        *(f'data: "page {page} of 2026-01"' for page in (1, 2, 3)),
        "event: end",
        'data: "completed"',
        "report of 2026-01, 3 pages",
        "no such report: 404",
    ]


def test_an_event_goes_to_each_subscriber_once(t: Travel, partner: Partner) -> None:
    with Partner() as other:
        publish.enqueue("paid", [partner.url, other.url])
        t.run_all()
        t.assert_completed(deliver, count=2)
        assert (len(partner.got), len(other.got)) == (1, 1)


def test_a_subscriber_gets_no_more_than_its_rate(t: Travel, partner: Partner) -> None:
    start = t.now
    for number in range(50):
        publish.enqueue(f"event {number}", [partner.url])
    t.run_all()
    assert len(partner.got) == 50
    assert t.now - start >= timedelta(seconds=2), "50 deliveries at 20 a second"


def test_an_outage_of_a_subscriber_costs_no_retry(t: Travel, partner: Partner) -> None:
    partner.go()
    for number in range(10):
        publish.enqueue(f"event {number}", [partner.url])
    t.run_due()
    t.advance("1m")
    partner.come()
    t.run_all()
    jobs = t.assert_completed(deliver, count=10)
    assert len(partner.got) == 10
    assert jobs is not None


@pytest.mark.long
def test_the_webhook_sender_tells_how_it_went(tmp_path: Path) -> None:
    assert run("webhook_sender", tmp_path) == [
        "both subscribers have five events, each of them once",
        "a subscriber is away: the breaker is open",
        "it is back, and has all ten",
    ]


@pytest.mark.parametrize(
    "example", sorted(path.parent.name for path in (ROOT / "examples").glob("*/README.md"))
)
def test_an_example_is_in_the_index(example: str) -> None:
    index = (ROOT / "examples/README.md").read_text("utf-8")
    assert f"]({example}/README.md)" in index
