"""The examples of streams, webhooks, imports and FastAPI run, and do what their READMEs say."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from examples.notifier.partner import Partner
from examples.webhook_sender.app import SUBSCRIBERS, app, publish
from tests.examples.test_examples import ROOT, run
from windlass import PermanentError
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


def test_an_event_goes_to_each_subscriber_once_and_signed(t: Travel, partner: Partner) -> None:
    with Partner() as other:
        publish.enqueue("paid", {"billing": partner.url, "crm": other.url})
        t.run_all()
        for deliver in SUBSCRIBERS.values():
            t.assert_completed(deliver, count=1)
        assert (len(partner.got), len(other.got)) == (1, 1)
        assert partner.signatures == other.signatures
        assert len(partner.signatures[0]) == 64


def test_a_subscriber_gets_no_more_than_its_rate(t: Travel, partner: Partner) -> None:
    start = t.now
    for number in range(50):
        publish.enqueue(f"event {number}", {"crm": partner.url})
    t.run_all()
    assert len(partner.got) == 50
    assert t.now - start >= timedelta(seconds=2), "50 deliveries at 20 a second"


def test_an_outage_of_a_subscriber_costs_no_retry_and_stops_no_other(
    t: Travel, partner: Partner
) -> None:
    with Partner() as other:
        partner.go()
        for number in range(10):
            publish.enqueue(f"event {number}", {"crm": partner.url, "billing": other.url})
        t.run_due()
        t.advance("5s")
        t.run_due()
        assert len(other.got) == 10, "the breaker of one subscriber holds up another"
        t.advance("1m")
        partner.come()
        t.run_all()
        t.assert_completed(SUBSCRIBERS["crm"], count=10)
        assert len(partner.got) == 10


@pytest.mark.parametrize(("status", "attempts"), [(410, 1), (500, 2)])
def test_only_an_error_of_the_server_is_worth_a_retry(
    t: Travel, status: int, attempts: int
) -> None:
    with Partner(status) as partner:
        publish.enqueue("paid", {"crm": partner.url})
        t.run_all()
        assert partner.asked == attempts
        assert len(partner.got) == attempts - 1
    if status == 410:
        t.assert_dead(SUBSCRIBERS["crm"], error=PermanentError)


def test_a_subscriber_says_when_it_wants_the_next_request(t: Travel) -> None:
    with Partner(429, retry_after=30) as partner:
        publish.enqueue("paid", {"crm": partner.url})
        t.run_due()
        t.advance("29s")
        t.run_due()
        assert partner.asked == 1
        t.advance("2s")
        t.run_due()
        assert partner.asked == 2


@pytest.mark.long
def test_the_webhook_sender_tells_how_it_went(tmp_path: Path) -> None:
    assert run("webhook_sender", tmp_path) == [
        "both subscribers have five events, each of them once",
        "a subscriber is away: its breaker is open, and no other",
        "it is back, and has all ten",
    ]


@pytest.mark.parametrize(
    "example", sorted(path.parent.name for path in (ROOT / "examples").glob("*/README.md"))
)
def test_an_example_is_in_the_index(example: str) -> None:
    index = (ROOT / "examples/README.md").read_text("utf-8")
    assert f"]({example}/README.md)" in index
