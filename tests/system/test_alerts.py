"""Every alert fires when what it is about has lasted for long enough, and not before."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.system.debian import program

yaml = pytest.importorskip("yaml", reason="pip install windlass[dev]")
ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/alerts.yml"
PROCESS = '{instance="h:9090",process="1"}'
CLUSTER = 'instance="h:9090"'
BEGAN = f"windlass_start_time_seconds{{{CLUSTER}}}"
"""Since when it has counted; promtool's clock begins at 0."""
NARROWED = ("kubernetes/scaler.yaml", "grafana/windlass.json")


class Case(NamedTuple):
    """What is seen each minute, when that is an alert, and for how many minutes it was none."""

    alert: str
    series: dict[str, str]
    """By Prometheus' notation: 0+5x9 is ten values, each by 5 more than the last."""
    quiet: str
    fires: str
    labels: dict[str, str]


def _counter(name: str) -> str:
    return f'{name}{{{CLUSTER},queue="q",kind="k"}}'


def _depth(name: str) -> str:
    return f'{name}{{{CLUSTER},queue="q",state="pending"}}'


CASES = [
    Case("WindlassNoWorkers", {f"windlass_up{PROCESS}": "1 1 0x10"}, "3m", "5m", {}),
    Case(
        "WindlassQueueUnserved",
        {f'windlass_queue_unserved_lanes{{{CLUSTER},queue="q"}}': "0 0 1x9"},
        "3m",
        "5m",
        {"queue": "q"},
    ),
    Case(
        "WindlassCrashLoop",
        {f"windlass_process_deaths_total{{{CLUSTER}}}": "0 0 0 2 4 6 8 10x9"},
        "2m",
        "8m",
        {"instance": "h:9090"},
    ),
    Case(
        # A container that dies with its workers, whose counts therefore stay at 0.
        "WindlassRestarts",
        {
            f"windlass_start_time_seconds{{{CLUSTER}}}": "60x3 240x3 480 480 600 600 _ 780x9",
            f"windlass_process_deaths_total{{{CLUSTER}}}": "0x20",
        },
        "8m",
        "12m",
        {"instance": "h:9090"},
    ),
    Case(
        "WindlassNotScraped",
        {f'up{{{CLUSTER},job="windlass"}}': "1x20 0x30"},
        "29m",
        "32m",
        {"instance": "h:9090", "job": "windlass"},
    ),
    Case(
        # It is up for a moment after each start.
        "WindlassNotScraped",
        {f'up{{{CLUSTER},job="shop/windlass-worker"}}': "1x20" + " 0 0 0 1" * 10},
        "24m",
        "40m",
        {"instance": "h:9090", "job": "shop/windlass-worker"},
    ),
    Case(
        "WindlassHeartbeatStale",
        {
            f"windlass_heartbeat_age_seconds{PROCESS}": "5 5 5 28 80 140",
            f"windlass_lease_seconds{PROCESS}": "30x9",
        },
        "2m",
        "4m",
        {"instance": "h:9090", "process": "1"},
    ),
    Case(
        "WindlassLoopBlocked",
        {f"windlass_loop_lag_seconds{PROCESS}": "0 0 6 66 126 186"},
        "2m",
        "4m",
        {"instance": "h:9090", "process": "1"},
    ),
    Case(
        # Four seconds of every five; no single stall is long.
        "WindlassLoopBlocked",
        {
            f"windlass_loop_lag_seconds{PROCESS}": "0x5 3 0 1 2 0 3 1 2 3 0 1",
            f"windlass_loop_late_seconds_total{PROCESS}": "0+2x4 8+48x10",
        },
        "6m",
        "12m",
        {"instance": "h:9090", "process": "1"},
    ),
    Case(
        "WindlassDeadLettersGrowing",
        {_counter("windlass_jobs_dead_total"): "3x60 4+1x30"},
        "60m",
        "75m",
        {"queue": "q", "kind": "k"},
    ),
    Case(
        "WindlassErrorRate",
        {
            f'windlass_jobs_failed_total{{{CLUSTER},queue="q",kind="k"}}': "0x10 0+20x40",
            f'windlass_job_duration_seconds_count{{{CLUSTER},queue="q",kind="k"}}': "0+60x50",
        },
        "10m",
        "30m",
        {"kind": "k"},
    ),
    Case(
        "WindlassRescues",
        {f'windlass_jobs_rescued_total{{{CLUSTER},queue="q",kind="k"}}': "0x5 5 10 15x20"},
        "5m",
        "9m",
        {},
    ),
    Case(
        "WindlassFencedWrites",
        {f'windlass_jobs_fenced_total{{{CLUSTER},queue="q",kind="k"}}': "0x5 3 6 9x20"},
        "5m",
        "9m",
        {"kind": "k"},
    ),
    # After a deploy all jobs of a kind fail within one scrape: the series are born above 0.
    Case(
        "WindlassDeadLettersGrowing",
        {_counter("windlass_jobs_dead_total"): "_x5 500x30", BEGAN: "0x40"},
        "5m",
        "11m",
        {"queue": "q", "kind": "k"},
    ),
    Case(
        "WindlassErrorRate",
        {
            _counter("windlass_jobs_failed_total"): "_x5 500x30",
            _counter("windlass_job_duration_seconds_count"): "_x5 600x30",
            BEGAN: "0x40",
        },
        "5m",
        "11m",
        {"kind": "k"},
    ),
    Case(
        "WindlassRescues",
        {_counter("windlass_jobs_rescued_total"): "_x5 500x30", BEGAN: "0x40"},
        "4m",
        "7m",
        {},
    ),
    Case(
        "WindlassFencedWrites",
        {_counter("windlass_jobs_fenced_total"): "_x5 500x30", BEGAN: "0x40"},
        "4m",
        "7m",
        {"kind": "k"},
    ),
    # A kind fails for the first time, in workers that are old: theirs are new series, too.
    Case(
        "WindlassDeadLettersGrowing",
        {_counter("windlass_jobs_dead_total"): "_x90 1x30", BEGAN: "0x120"},
        "90m",
        "96m",
        {"queue": "q", "kind": "k"},
    ),
    Case(
        "WindlassSlower",
        {
            f'windlass_kind_duration_seconds{{{CLUSTER},kind="k",percentile="p95"}}': (
                "1x1500 2.5x100"
            ),
            _counter("windlass_job_duration_seconds_count"): "0+1x1600",
        },
        "1500m",
        "1560m",
        {"kind": "k"},
    ),
    Case(
        "WindlassTargetMissed",
        {
            f'windlass_kind_oldest_pending_seconds{{{CLUSTER},kind="k"}}': "3 4 6 66 126",
            f'windlass_kind_target_seconds{{{CLUSTER},kind="k"}}': "5x9",
        },
        "1m",
        "4m",
        {"kind": "k"},
    ),
    Case(
        "WindlassOldestPending",
        {f'windlass_queue_oldest_pending_seconds{{{CLUSTER},queue="q"}}': "0+60x60"},
        "15m",
        "25m",
        {"queue": "q"},
    ),
    Case(
        "WindlassDepthGrowing",
        {f'windlass_queue_jobs{{{CLUSTER},queue="q",state="pending"}}': "50x60 50+20x60"},
        "60m",
        "110m",
        {"queue": "q"},
    ),
    Case(
        # An empty queue may have no series; that the fleet was sampled tells it from no news.
        "WindlassDepthGrowing",
        {
            _depth("windlass_queue_jobs"): "_x60 150x60",
            f"windlass_sample_age_seconds{{{CLUSTER}}}": "5x130",
        },
        "60m",
        "86m",
        {"queue": "q"},
    ),
    Case(
        # After an hour two jobs a second more come than leave; what is counted stays the same.
        "WindlassDepthGrowing",
        {
            _depth("windlass_queue_jobs"): "60000x200",
            _depth("windlass_queue_jobs_capped"): "1x200",
            f'windlass_queue_arrival_rate{{{CLUSTER},queue="q"}}': "10x60 12x140",
            f'windlass_queue_service_rate{{{CLUSTER},queue="q"}}': "10x200",
        },
        "60m",
        "90m",
        {"queue": "q"},
    ),
    Case(
        "WindlassBreakerOpen",
        {f'windlass_breaker_state{{{CLUSTER},breaker="smtp"}}': "0 1 2x20"},
        "5m",
        "9m",
        {"breaker": "smtp"},
    ),
    Case(
        # Open for a minute, half-open while its probe fails, and so on.
        "WindlassBreakerOpen",
        {f'windlass_breaker_state{{{CLUSTER},breaker="smtp"}}': "0" + " 2 1" * 10},
        "5m",
        "9m",
        {"breaker": "smtp"},
    ),
    Case(
        "WindlassScheduleLate",
        {f"windlass_schedule_lag_seconds{{{CLUSTER}}}": "0 30 90 150 210"},
        "2m",
        "4m",
        {},
    ),
    Case(
        "WindlassStoreUnreachable",
        {
            f"windlass_store_contact_age_seconds{PROCESS}": "1 1 31 91 151",
            f"windlass_loop_lag_seconds{PROCESS}": "0x9",
        },
        "2m",
        "4m",
        {"instance": "h:9090", "process": "1"},
    ),
    Case(
        # The loop stands still as well, but not for as long: that is not why nobody answers.
        "WindlassStoreUnreachable",
        {
            f"windlass_store_contact_age_seconds{PROCESS}": "1 1 31 91 151",
            f"windlass_loop_lag_seconds{PROCESS}": "0 0 0 0 55",
        },
        "2m",
        "4m",
        {"instance": "h:9090", "process": "1"},
    ),
    Case(
        "WindlassListenerDead",
        {f"windlass_listening{PROCESS}": "1 1 0x20"},
        "5m",
        "9m",
        {"instance": "h:9090", "process": "1"},
    ),
    Case(
        "WindlassSnapshotHeld",
        {f"windlass_snapshot_age_seconds{{{CLUSTER}}}": "0+60x30"},
        "10m",
        "13m",
        {},
    ),
    Case(
        "WindlassSampleStale",
        {f"windlass_sample_age_seconds{{{CLUSTER}}}": "5 5 61 121 181 241"},
        "3m",
        "5m",
        {},
    ),
    Case(
        # Workers serve, and none of them has ever sampled.
        "WindlassSampleStale",
        {f"windlass_up{PROCESS}": "_ _ 1x9"},
        "2m",
        "4m",
        {},
    ),
    Case(
        "WindlassPoolExhausted",
        {
            f"windlass_pool_connections_in_use{PROCESS}": "3 29x20",
            f"windlass_pool_connections_limit{PROCESS}": "30x30",
        },
        "5m",
        "8m",
        {"instance": "h:9090", "process": "1"},
    ),
]


def promtool(*words: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [program("promtool"), *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_there_is_a_case_for_every_alert() -> None:
    declared = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert sorted(declared) == sorted({case.alert for case in CASES})


def test_counting_further_than_before_is_not_growth(tmp_path: Path) -> None:
    """Of a long queue more is counted while the store has time; that is not more jobs."""
    drains = Case(
        "WindlassDepthGrowing",
        {
            _depth("windlass_queue_jobs"): "60000x60 480000x200",
            _depth("windlass_queue_jobs_capped"): "1x260",
            f'windlass_queue_arrival_rate{{{CLUSTER},queue="q"}}': "10x260",
            f'windlass_queue_service_rate{{{CLUSTER},queue="q"}}': "12x260",
        },
        "",
        "",
        {},
    )
    _check(drains, {f"{minute}m": [] for minute in range(60, 200, 5)}, tmp_path)


def test_a_queue_that_nobody_has_counted_before_is_not_said_to_grow(tmp_path: Path) -> None:
    """A fleet that was just started, or scraped for the first time, tells no depth of before."""
    new = Case(
        "WindlassDepthGrowing",
        {
            _depth("windlass_queue_jobs"): "_x60 150x60",
            f"windlass_sample_age_seconds{{{CLUSTER}}}": "_x60 5x60",
        },
        "",
        "",
        {},
    )
    _check(new, {f"{minute}m": [] for minute in range(60, 120, 5)}, tmp_path)


def test_a_blocked_loop_is_not_taken_for_a_store_that_cannot_be_reached(tmp_path: Path) -> None:
    """Whoever is woken for it looks at the database otherwise, which is well."""
    ages = {
        f"windlass_store_contact_age_seconds{PROCESS}": "1 3 63 123 183 243 1x9",
        f"windlass_loop_lag_seconds{PROCESS}": "0 2 61 121 181 241 0x9",
    }
    blocked = Case("WindlassStoreUnreachable", ages, "", "", {})
    _check(blocked, {f"{minute}m": [] for minute in range(10)}, tmp_path)


def test_a_breaker_whose_first_probe_succeeds_wakes_nobody(tmp_path: Path) -> None:
    """Nor does one that is half-open since, because nothing has come that could be its probe."""
    state = f'windlass_breaker_state{{{CLUSTER},breaker="smtp"}}'
    idle = f'windlass_breaker_state{{{CLUSTER},breaker="sms"}}'
    once = Case("WindlassBreakerOpen", {state: "0 2 1 0x40", idle: "0 2 1x40"}, "", "", {})
    _check(once, {f"{minute}m": [] for minute in range(40)}, tmp_path)


@pytest.mark.parametrize(
    ("alert", "name"),
    [
        ("WindlassDeadLettersGrowing", "windlass_jobs_dead_total"),
        ("WindlassRescues", "windlass_jobs_rescued_total"),
        ("WindlassFencedWrites", "windlass_jobs_fenced_total"),
    ],
)
def test_what_was_counted_long_ago_is_no_news_to_a_prometheus_that_was_away(
    alert: str, name: str, tmp_path: Path
) -> None:
    """Minutes or hours without a scrape do not make a series a new one; nor is an old one news."""
    for gap in (20, 180):
        series = {_counter(name): f"500x60 _x{gap} 500x60", BEGAN: f"0x60 _x{gap} 0x60"}
        away = Case(alert, series, "", "", {})
        _check(away, {f"{minute}m": [] for minute in range(60, 120 + gap, 5)}, tmp_path)


@pytest.mark.parametrize(
    ("alert", "name"),
    [
        ("WindlassDeadLettersGrowing", "windlass_jobs_dead_total"),
        ("WindlassErrorRate", "windlass_jobs_failed_total"),
        ("WindlassRescues", "windlass_jobs_rescued_total"),
        ("WindlassFencedWrites", "windlass_jobs_fenced_total"),
    ],
)
def test_what_old_workers_have_counted_is_no_news_at_their_first_scrape(
    alert: str, name: str, tmp_path: Path
) -> None:
    runs = _counter("windlass_job_duration_seconds_count")
    series = {_counter(name): "_x60 500x60", runs: "_x60 600x60", BEGAN: "_x60 0x60"}
    _check(
        Case(alert, series, "", "", {}), {f"{minute}m": [] for minute in range(60, 120)}, tmp_path
    )


def test_one_failure_of_a_job_that_runs_at_night_is_no_rate(tmp_path: Path) -> None:
    failed, runs = map(
        _counter, ("windlass_jobs_failed_total", "windlass_job_duration_seconds_count")
    )
    for seen in ("3x60 4x60", "_x60 1x60"):
        nightly = Case("WindlassErrorRate", {failed: seen, runs: seen, BEGAN: "0x120"}, "", "", {})
        _check(nightly, {f"{minute}m": [] for minute in range(60, 120, 2)}, tmp_path)


def test_a_few_runs_do_not_make_a_kind_slower(tmp_path: Path) -> None:
    """Neither today's percentile nor yesterday's means anything if it is that of one run."""
    took = _counter("windlass_kind_duration_seconds").replace('queue="q"', 'percentile="p95"')
    runs = _counter("windlass_job_duration_seconds_count")
    series = {}
    for kind, counted in {
        "always": "0x60 1x1440 2x200",
        "today": "0+1x60 60x1440 61x200",
        "yesterday": "0x60 1x1440 2+1x200",
    }.items():
        series[runs.replace('"k"', f'"{kind}"')] = counted
        series[took.replace('"k"', f'"{kind}"')] = "1x1500 2.5x200"
    few = Case("WindlassSlower", series, "", "", {})
    _check(few, {f"{minute}m": [] for minute in range(1500, 1560, 5)}, tmp_path)


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
            {_depth("windlass_queue_jobs"): "50+20x60"},
        ),
    ],
)
def test_what_is_paused_is_meant_to_wait(
    alert: str, paused: str, series: dict[str, str], tmp_path: Path
) -> None:
    """Two workers serve the figures; one has not heard of the pause yet."""
    other = {paused.replace("h:9090", "i:9090"): "0x60"}
    held = Case(alert, {**series, **other, paused: "1x60"}, "", "", {})
    _check(held, {f"{minute}m": [] for minute in range(0, 60, 5)}, tmp_path)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_when_it_has_to_and_not_before(case: Case, tmp_path: Path) -> None:
    found = re.search(rf"- alert: {case.alert}\n(?:.*\n)*?.*severity: (\w+)", RULES.read_text())
    assert found is not None
    fired = {"exp_labels": {**case.labels, "severity": found[1]}}
    _check(case, {case.quiet: [], case.fires: [fired]}, tmp_path)


def test_a_copy_of_the_rules_sees_one_fleet_alone(tmp_path: Path) -> None:
    """Both fleets are scraped; the workers of the one are no comfort to the other."""
    up = {f'windlass_up{{{CLUSTER},fleet="{name}"}}': "1x20" for name in ("shop", "bank")}
    up[f'windlass_up{{{CLUSTER},fleet="shop"}}'] = "1 1 0x20"
    died = Case("WindlassNoWorkers", up, "", "", {})
    _check(died, {"9m": []}, tmp_path)
    rules = _narrowed(RULES.read_text())
    fired = {"exp_labels": {"fleet": "shop", "severity": "critical"}}
    _check(died, {"3m": [], "9m": [fired]}, tmp_path, rules=rules)
    (tmp_path / "shop.yml").write_text(rules)
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", tmp_path / "shop.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("path", [*NARROWED, "prometheus/alerts.yml"])
def test_all_that_is_asked_of_prometheus_can_be_narrowed_to_a_fleet(path: str) -> None:
    text = _narrowed((ROOT / "deploy" / path).read_text())
    asked = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    assert re.findall(r"windlass_[a-z_]+\{fleet='shop'[,}]", asked)
    assert not re.findall(r"windlass_[a-z_]+(?![a-z_]|\{fleet='shop'[,}])", asked)
    assert not re.findall(r"\bup\{(?!fleet=)", asked)
    if path.endswith(".json"):
        json.loads(text)


def _narrowed(text: str) -> str:
    """Return a file as it is after what the head of the rules, and the docs, tell to do with it."""
    told = re.search(r'^#   (sed -E ".*") alerts.yml$', RULES.read_text(), re.MULTILINE)
    assert told is not None
    assert told[1] in (ROOT / "docs/metrics.md").read_text()
    made = subprocess.run(["sh", "-c", told[1]], input=text, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return made.stdout


def _alone(alert: str, rules: str) -> dict[str, Any]:
    """Return the rules without the other alerts: all of them over a day take promtool seconds.

    What an alert says is for people; promtool would have it repeated here, word by word.
    """
    groups = yaml.safe_load(rules)["groups"]
    for group in groups:
        group["rules"] = [each for each in group["rules"] if each.get("alert", alert) == alert]
        for each in group["rules"]:
            each.pop("annotations", None)
    return {"groups": groups}


def _check(
    case: Case, expected: dict[str, list[Any]], tmp_path: Path, *, rules: str | None = None
) -> None:
    text = RULES.read_text() if rules is None else rules
    (tmp_path / "alerts.yml").write_text(json.dumps(_alone(case.alert, text)))
    document = {
        "rule_files": ["alerts.yml"],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": series, "values": values} for series, values in case.series.items()
                ],
                "alert_rule_test": [
                    {"eval_time": moment, "alertname": case.alert, "exp_alerts": alerts}
                    for moment, alerts in expected.items()
                ],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(json.dumps(document))
    tested = promtool("test", "rules", tmp_path / "test.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr
