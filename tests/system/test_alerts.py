"""Every alert fires when what it is about has lasted for long enough, and not before."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.system.alerts import (
    BEGAN,
    CLUSTER,
    PROCESS,
    RULES,
    Case,
    check,
    counter,
    depth,
    promtool,
)

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
        {counter("windlass_jobs_dead_total"): "3x60 4+1x30"},
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
        {counter("windlass_jobs_dead_total"): "_x5 500x30", BEGAN: "0x40"},
        "5m",
        "11m",
        {"queue": "q", "kind": "k"},
    ),
    Case(
        "WindlassErrorRate",
        {
            counter("windlass_jobs_failed_total"): "_x5 500x30",
            counter("windlass_job_duration_seconds_count"): "_x5 600x30",
            BEGAN: "0x40",
        },
        "5m",
        "11m",
        {"kind": "k"},
    ),
    Case(
        "WindlassRescues",
        {counter("windlass_jobs_rescued_total"): "_x5 500x30", BEGAN: "0x40"},
        "4m",
        "7m",
        {},
    ),
    Case(
        "WindlassFencedWrites",
        {counter("windlass_jobs_fenced_total"): "_x5 500x30", BEGAN: "0x40"},
        "4m",
        "7m",
        {"kind": "k"},
    ),
    # A kind fails for the first time, in workers that are old: theirs are new series, too.
    Case(
        "WindlassDeadLettersGrowing",
        {counter("windlass_jobs_dead_total"): "_x90 1x30", BEGAN: "0x120"},
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
            counter("windlass_job_duration_seconds_count"): "0+1x1600",
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
            depth("windlass_queue_jobs"): "_x60 150x60",
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
            depth("windlass_queue_jobs"): "60000x200",
            depth("windlass_queue_jobs_capped"): "1x200",
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
        # A sample that meets the moment between two jobs does not end it.
        "WindlassThreadsShort",
        {f'windlass_kind_short{{{CLUSTER},kind="k",pool="threads"}}': "_x5 1x4 _ 1x20"},
        "10m",
        "17m",
        {"kind": "k", "pool": "threads"},
    ),
    Case(
        "WindlassBreakerPinned",
        {f'windlass_breaker_pinned{{{CLUSTER},breaker="b"}}': "0x5 1x80"},
        "60m",
        "70m",
        {"breaker": "b"},
    ),
    Case(
        # Two processes in one container: each has room by itself.
        "WindlassMemoryShort",
        {
            f"windlass_memory_bytes{PROCESS}": "100x5 500x20",
            f"windlass_memory_bytes{PROCESS}".replace('"1"', '"2"'): "100x5 450x20",
            f"windlass_memory_limit_bytes{PROCESS}": "1000x30",
            f"windlass_memory_limit_bytes{PROCESS}".replace('"1"', '"2"'): "1000x30",
        },
        "6m",
        "13m",
        {"instance": "h:9090"},
    ),
    Case(
        "WindlassDiskShort",
        {
            f"windlass_store_disk_free_bytes{{{CLUSTER}}}": "500x5 99x20",
            f"windlass_store_disk_bytes{{{CLUSTER}}}": "1000x30",
        },
        "6m",
        "13m",
        {},
    ),
    *(
        Case(
            alert,
            {f'windlass_store_findings{{{CLUSTER},finding="{finding}"}}': "_x5 1x40"},
            "4m",
            "25m",
            {"finding": finding} if is_named else {},
        )
        for alert, finding, is_named in (
            ("WindlassStoreEmptied", "emptied", False),
            ("WindlassStoreMemoryShort", "memory_short", False),
            ("WindlassStoreEvicts", "eviction", False),
            ("WindlassStoreNotPersistent", "persistence_off", True),
            ("WindlassStoreNotPersistent", "persistence_failing", True),
            ("WindlassReplicaBehind", "replica_behind", False),
            ("WindlassStoreFinding", "memory_unlimited", True),
            ("WindlassStoreFinding", "bloat", True),
        )
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


def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_there_is_a_case_for_every_alert() -> None:
    declared = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert sorted(declared) == sorted({case.alert for case in CASES})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_when_it_has_to_and_not_before(case: Case, tmp_path: Path) -> None:
    found = re.search(rf"- alert: {case.alert}\n(?:.*\n)*?.*severity: (\w+)", RULES.read_text())
    assert found is not None
    fired = {"exp_labels": {**case.labels, "severity": found[1]}}
    check(case, {case.quiet: [], case.fires: [fired]}, tmp_path)
