"""Owns how alerts are tried: what Prometheus sees, minute by minute, and what fires when."""

from __future__ import annotations

import json
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


class Case(NamedTuple):
    """What is seen each minute, when that is an alert, and for how many minutes it was none."""

    alert: str
    series: dict[str, str]
    """By Prometheus' notation: 0+5x9 is ten values, each by 5 more than the last."""
    quiet: str
    fires: str
    labels: dict[str, str]


def counter(name: str) -> str:
    return f'{name}{{{CLUSTER},queue="q",kind="k"}}'


def depth(name: str) -> str:
    return f'{name}{{{CLUSTER},queue="q",state="pending"}}'


def promtool(*words: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [program("promtool"), *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def check(
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
