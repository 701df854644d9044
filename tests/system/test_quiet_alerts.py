"""Alerts are silent about what is meant to be so, is old news, or is the matter of another."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.system.alerts import (
    BEGAN,
    CLUSTER,
    PROCESS,
    ROOT,
    RULES,
    Case,
    check,
    counter,
    depth,
    promtool,
)

ASKING = ("prometheus/alerts.yml", "kubernetes/scaler.yaml", "grafana/windlass.json")


def test_counting_further_than_before_is_not_growth(tmp_path: Path) -> None:
    """Of a long queue more is counted while the store has time; that is not more jobs."""
    drains = Case(
        "WindlassDepthGrowing",
        {
            depth("windlass_queue_jobs"): "60000x60 480000x200",
            depth("windlass_queue_jobs_capped"): "1x260",
            f'windlass_queue_arrival_rate{{{CLUSTER},queue="q"}}': "10x260",
            f'windlass_queue_service_rate{{{CLUSTER},queue="q"}}': "12x260",
        },
        "",
        "",
        {},
    )
    check(drains, {f"{minute}m": [] for minute in range(60, 200, 5)}, tmp_path)


def test_a_queue_that_nobody_has_counted_before_is_not_said_to_grow(tmp_path: Path) -> None:
    """A fleet that was just started, or scraped for the first time, tells no depth of before."""
    new = Case(
        "WindlassDepthGrowing",
        {
            depth("windlass_queue_jobs"): "_x60 150x60",
            f"windlass_sample_age_seconds{{{CLUSTER}}}": "_x60 5x60",
        },
        "",
        "",
        {},
    )
    check(new, {f"{minute}m": [] for minute in range(60, 120, 5)}, tmp_path)


def test_a_blocked_loop_is_not_taken_for_a_store_that_cannot_be_reached(tmp_path: Path) -> None:
    """Whoever is woken for it looks at the database otherwise, which is well."""
    ages = {
        f"windlass_store_contact_age_seconds{PROCESS}": "1 3 63 123 183 243 1x9",
        f"windlass_loop_lag_seconds{PROCESS}": "0 2 61 121 181 241 0x9",
    }
    blocked = Case("WindlassStoreUnreachable", ages, "", "", {})
    check(blocked, {f"{minute}m": [] for minute in range(10)}, tmp_path)


def test_a_breaker_whose_first_probe_succeeds_wakes_nobody(tmp_path: Path) -> None:
    """Nor does one that is half-open since, because nothing has come that could be its probe."""
    state = f'windlass_breaker_state{{{CLUSTER},breaker="smtp"}}'
    idle = f'windlass_breaker_state{{{CLUSTER},breaker="sms"}}'
    once = Case("WindlassBreakerOpen", {state: "0 2 1 0x40", idle: "0 2 1x40"}, "", "", {})
    check(once, {f"{minute}m": [] for minute in range(40)}, tmp_path)


@pytest.mark.parametrize(
    ("alert", "name"),
    [
        ("WindlassDeadLettersGrowing", "windlass_jobs_dead_total"),
        ("WindlassRescues", "windlass_jobs_rescued_total"),
        ("WindlassFencedWrites", "windlass_jobs_fenced_total"),
    ],
)
def test_old_counts_raise_no_alert_after_an_outage_of_prometheus(
    alert: str, name: str, tmp_path: Path
) -> None:
    """Minutes or hours without a scrape do not make a series a new one; nor is an old one news."""
    for gap in (20, 180):
        series = {counter(name): f"500x60 _x{gap} 500x60", BEGAN: f"0x60 _x{gap} 0x60"}
        away = Case(alert, series, "", "", {})
        check(away, {f"{minute}m": [] for minute in range(60, 120 + gap, 5)}, tmp_path)


@pytest.mark.parametrize(
    ("alert", "name"),
    [
        ("WindlassDeadLettersGrowing", "windlass_jobs_dead_total"),
        ("WindlassErrorRate", "windlass_jobs_failed_total"),
        ("WindlassRescues", "windlass_jobs_rescued_total"),
        ("WindlassFencedWrites", "windlass_jobs_fenced_total"),
    ],
)
def test_earlier_counts_of_workers_raise_no_alert_at_their_first_scrape(
    alert: str, name: str, tmp_path: Path
) -> None:
    runs = counter("windlass_job_duration_seconds_count")
    series = {counter(name): "_x60 500x60", runs: "_x60 600x60", BEGAN: "_x60 0x60"}
    check(
        Case(alert, series, "", "", {}), {f"{minute}m": [] for minute in range(60, 120)}, tmp_path
    )


def test_one_failure_of_a_job_that_runs_at_night_is_no_rate(tmp_path: Path) -> None:
    failed, runs = map(
        counter, ("windlass_jobs_failed_total", "windlass_job_duration_seconds_count")
    )
    for seen in ("3x60 4x60", "_x60 1x60"):
        nightly = Case("WindlassErrorRate", {failed: seen, runs: seen, BEGAN: "0x120"}, "", "", {})
        check(nightly, {f"{minute}m": [] for minute in range(60, 120, 2)}, tmp_path)


def test_a_few_runs_do_not_make_a_kind_slower(tmp_path: Path) -> None:
    """Neither today's percentile nor yesterday's means anything if it is that of one run."""
    took = counter("windlass_kind_duration_seconds").replace('queue="q"', 'percentile="p95"')
    runs = counter("windlass_job_duration_seconds_count")
    series = {}
    for kind, counted in {
        "always": "0x60 1x1440 2x200",
        "today": "0+1x60 60x1440 61x200",
        "yesterday": "0x60 1x1440 2+1x200",
    }.items():
        series[runs.replace('"k"', f'"{kind}"')] = counted
        series[took.replace('"k"', f'"{kind}"')] = "1x1500 2.5x200"
    few = Case("WindlassSlower", series, "", "", {})
    check(few, {f"{minute}m": [] for minute in range(1500, 1560, 5)}, tmp_path)


@pytest.mark.parametrize(
    ("alert", "paused", "series"),
    [
        (
            "WindlassQueueUnserved",
            f'windlass_queue_paused{{{CLUSTER},queue="q"}}',
            {f'windlass_queue_unserved_lanes{{{CLUSTER},queue="q"}}': "1x60"},
        ),
        (
            "WindlassOldestPending",
            f'windlass_queue_paused{{{CLUSTER},queue="q"}}',
            {f'windlass_queue_oldest_pending_seconds{{{CLUSTER},queue="q"}}': "1800+60x60"},
        ),
        (
            "WindlassTargetMissed",
            f'windlass_kind_paused{{{CLUSTER},kind="k"}}',
            {
                f'windlass_kind_oldest_pending_seconds{{{CLUSTER},kind="k"}}': "60x60",
                f'windlass_kind_target_seconds{{{CLUSTER},kind="k"}}': "5x60",
            },
        ),
        (
            "WindlassDepthGrowing",
            f'windlass_queue_paused{{{CLUSTER},queue="q"}}',
            {depth("windlass_queue_jobs"): "50+20x60"},
        ),
    ],
)
def test_alerts_are_silent_for_paused_jobs(
    alert: str, paused: str, series: dict[str, str], tmp_path: Path
) -> None:
    """Two workers serve the figures; one has not heard of the pause yet."""
    other = {paused.replace("h:9090", "i:9090"): "0x60"}
    held = Case(alert, {**series, **other, paused: "1x60"}, "", "", {})
    check(held, {f"{minute}m": [] for minute in range(0, 60, 5)}, tmp_path)


def test_a_copy_of_the_rules_sees_one_fleet_alone(tmp_path: Path) -> None:
    """Both fleets are scraped; the workers of the one are no comfort to the other."""
    up = {f'windlass_up{{{CLUSTER},fleet="{name}"}}': "1x20" for name in ("shop", "bank")}
    up[f'windlass_up{{{CLUSTER},fleet="shop"}}'] = "1 1 0x20"
    died = Case("WindlassNoWorkers", up, "", "", {})
    check(died, {"9m": []}, tmp_path)
    rules = narrowed(RULES.read_text())
    fired = {"exp_labels": {"fleet": "shop", "severity": "critical"}}
    check(died, {"3m": [], "9m": [fired]}, tmp_path, rules=rules)
    (tmp_path / "shop.yml").write_text(rules)
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", tmp_path / "shop.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("path", ASKING)
def test_all_that_is_asked_of_prometheus_can_be_narrowed_to_a_fleet(path: str) -> None:
    text = narrowed((ROOT / "deploy" / path).read_text())
    asked = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    assert re.findall(r"windlass_[a-z_]+\{fleet='shop'[,}]", asked)
    assert not re.findall(r"windlass_[a-z_]+(?![a-z_]|\{fleet='shop'[,}])", asked)
    assert not re.findall(r"\bup\{(?!fleet=)", asked)
    if path.endswith(".json"):
        json.loads(text)


def narrowed(text: str) -> str:
    """Return a file as it is after what the head of the rules, and the docs, tell to do with it."""
    told = re.search(r'^#   (sed -E ".*") alerts.yml$', RULES.read_text(), re.MULTILINE)
    assert told is not None
    assert told[1] in (ROOT / "docs/metrics.md").read_text()
    made = subprocess.run(["sh", "-c", told[1]], input=text, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return made.stdout
