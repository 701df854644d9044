"""The notifier against a real server that misbehaves; only the time between tries is not real."""

from __future__ import annotations

import hmac
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from examples.notifier import app as notifier
from examples.notifier.app import Unwell, app, deliver
from examples.notifier.partner import Partner
from windlass.testing import Travel, travel_fixture

ROOT = Path(__file__).parents[2]
t = travel_fixture(app)


@pytest.fixture
def partner() -> Iterator[Partner]:
    with Partner() as made:
        yield made


def test_an_event_arrives_signed(t: Travel, partner: Partner) -> None:
    handle = deliver.enqueue(partner.url, "paid", {"order": "7"})
    t.run_due()
    t.assert_completed(handle, result=200)
    assert partner.got == {f"windlass-{handle.id}": {"event": "paid", "data": {"order": "7"}}}
    body = b'{"data": {"order": "7"}, "event": "paid"}'
    assert partner.signatures == [hmac.new(notifier.KEY, body, "sha256").hexdigest()]


def test_a_partner_that_fails_is_retried_with_backoff(t: Travel, partner: Partner) -> None:
    start = t.now
    partner.answers[:] = [500, 502, 503]
    handle = deliver.enqueue(partner.url, "paid", {})
    t.run_all()
    assert t.assert_completed(handle).attempt == 4
    assert t.now - start == timedelta(milliseconds=200 + 400 + 800)
    assert len(partner.got) == 1


def test_retries_end_for_a_partner_that_keeps_failing(t: Travel, partner: Partner) -> None:
    partner.answers[:] = [500] * 100
    handle = deliver.enqueue(partner.url, "paid", {})
    t.run_all()
    t.assert_dead(handle, error=Unwell)
    assert partner.asked == 6
    partner.answers.clear()
    app.control.redrive([handle.id])
    t.run_all()
    t.assert_completed(handle)


def test_an_event_that_was_taken_too_late_is_sent_twice_and_taken_once(
    t: Travel, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "PATIENCE", 0.05)
    partner.answers[:] = ["hang"]
    handle = deliver.enqueue(partner.url, "paid", {})
    t.run_due()
    assert "TimeoutError" in t.describe(t.assert_enqueued(handle, due="200ms"))
    monkeypatch.undo()
    t.run_all()
    t.assert_completed(handle)
    assert (partner.asked, len(partner.got)) == (2, 1)


def test_a_slow_partner_is_waited_for(t: Travel, partner: Partner) -> None:
    partner.answers[:] = ["slow"]
    deliver.enqueue(partner.url, "paid", {})
    t.run_due()
    assert t.assert_completed(deliver).attempt == 1


def test_a_partner_that_sends_retry_after_is_retried_then(t: Travel, partner: Partner) -> None:
    partner.answers[:] = [429]
    partner.retry_after = 3600
    handle = deliver.enqueue(partner.url, "paid", {})
    t.run_due()
    t.assert_enqueued(handle, due="1h")
    t.advance("1h")
    t.assert_completed(handle)


def test_a_request_that_the_partner_rejects_is_dead_at_once(t: Travel, partner: Partner) -> None:
    partner.answers[:] = [410]
    deliver.enqueue(partner.url, "paid", {})
    t.run_due()
    t.assert_dead(deliver, error="does not want it: 410")


def test_an_outage_costs_no_event_a_retry(t: Travel, partner: Partner) -> None:
    partner.go()
    handles = [deliver.enqueue(partner.url, "paid", {"order": str(n)}) for n in range(20)]
    t.run_due()
    assert sum(handle.info().attempt for handle in handles) == 4, "the breaker did not open"
    t.advance("1m")
    assert [handle.info().failures for handle in handles] == [0] * 20
    partner.come()
    t.run_all()
    t.assert_completed(deliver, count=20)
    assert len(partner.got) == 20


@pytest.mark.long
def test_the_program_tells_how_it_went(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.notifier"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "WINDLASS_URL": f"sqlite:///{tmp_path}/notifier.db",
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert lines[:4] == [
        "all is well: delivered, attempt 1",
        "two errors: delivered, attempt 3",
        "slow: delivered, attempt 1",
        "too slow: delivered, attempt 2",
    ]
    assert lines[4].startswith("nobody wants it: dead, ")
    assert lines[4].endswith("does not want it: 410")
    assert lines[5].startswith("the breaker is open: ")
    assert lines[6:] == [
        "the partner is back: all 20 are delivered",
        "24 events have arrived, each of them once",
    ]
