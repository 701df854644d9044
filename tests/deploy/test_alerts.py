"""Alerts, dashboard, docs and code speak of the same metrics, and every alert has its page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from windlass.core.metrics.families import FAMILIES

yaml = pytest.importorskip("yaml", reason="pip install windlass[dev]")
ROOT = Path(__file__).parents[2]
RULES = (ROOT / "deploy/prometheus/alerts.yml").read_text()
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana/windlass.json").read_text())
_NAME = re.compile(r"\bwindlass_[a-z0-9_]+")
_SELECTOR = re.compile(r"\b(windlass_[a-z0-9_]+)\{([^}]*)\}")
_PARTS = ("_bucket", "_sum", "_count")
_TARGET = {"instance", "job"}
"""The labels that Prometheus gives to all that it scrapes."""
_GROUPED = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)\s*")
_MATCHED = re.compile(r"\b(?:on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_AGGREGATED = re.compile(r"\b(?:sum|min|max|avg|count|absent)\s*(?:by\s*)?\(")
_SHOWN = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)")


class Asked(NamedTuple):
    """An expression, and what is said of each of its series, by their labels."""

    expr: str
    said: str

    def mistakes(self) -> Iterator[str]:
        """Tell which labels are named that nothing here has."""
        known = [self._labels(name) for name in _NAME.findall(self.expr)]
        for found in _GROUPED.finditer(self.expr):
            within = _NAME.findall(_enclosed(self.expr[found.end() :]))
            for label in _words(found[1]):
                yield from (
                    f"{label} of {name}" for name in within if label not in self._labels(name)
                )
        matched = {label for found in _MATCHED.findall(self.expr) for label in _words(found)}
        yield from matched - set().union(_TARGET, *known)
        if _AGGREGATED.search(self.expr):
            left = {label for found in _GROUPED.findall(self.expr) for label in _words(found)}
        else:
            left = set.intersection(*known) if known else _TARGET
        yield from set(_SHOWN.findall(self.said)) - left

    def _labels(self, name: str) -> set[str]:
        family = FAMILIES[family_of(name)]
        return {*family.labels, *_TARGET, *(["le"] if name.endswith("_bucket") else [])}


def _words(labels: str) -> list[str]:
    return re.findall(r"\w+", labels)


def _enclosed(text: str) -> str:
    """Return what is between the first parenthesis and the one that closes it."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return text[:at]
    return text


def family_of(name: str) -> str:
    """Return the family that a series belongs to; those of a histogram have endings."""
    for part in _PARTS:
        base = name.removesuffix(part)
        if base != name and base in FAMILIES and FAMILIES[base].type == "histogram":
            return base
    return name


def expressions() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


def variables() -> list[str]:
    return [each["query"] for each in DASHBOARD["templating"]["list"]]


def asked() -> list[Asked]:
    """Return all that is asked of Prometheus: by rules, and by the dashboard."""
    rules = [rule for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]]
    targets = [target for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    return [
        *(Asked(rule["expr"], rule.get("annotations", {}).get("summary", "")) for rule in rules),
        *(Asked(target["expr"], target["legendFormat"]) for target in targets),
    ]


@pytest.mark.parametrize("each", asked(), ids=lambda each: each.expr)
def test_series_are_grouped_matched_and_named_by_labels_that_they_have(each: Asked) -> None:
    assert not list(each.mistakes())


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        ("max by (qeue) (windlass_queue_jobs)", ""),
        ("max by (kind) (windlass_queue_paused) and max by (kind) (windlass_kind_paused)", ""),
        ("windlass_up unless on (proces) windlass_loop_lag_seconds", ""),
        ("max by (queue) (windlass_queue_jobs)", "{{ $labels.state }}"),
        ("max(windlass_queue_jobs)", "{{queue}}"),
        ("windlass_up", "{{ $labels.proces }}"),
    ],
)
def test_a_label_that_is_mistyped_or_gone_is_found(expr: str, said: str) -> None:
    assert list(Asked(expr, said).mistakes())


def test_alerts_use_only_metrics_that_exist() -> None:
    used = {family_of(name) for name in _NAME.findall(RULES)}
    assert used
    assert used <= set(FAMILIES)


def test_the_dashboard_uses_only_metrics_that_exist_and_shows_them_all() -> None:
    used = {
        family_of(name) for text in (*expressions(), *variables()) for name in _NAME.findall(text)
    }
    assert used <= set(FAMILIES)
    assert set(FAMILIES) <= used, "a metric that nobody looks at is one too many"


@pytest.mark.parametrize("text", [RULES, *expressions()])
def test_metrics_are_selected_by_labels_that_they_have(text: str) -> None:
    for name, labels in _SELECTOR.findall(text):
        given = set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)", labels))
        assert given <= {*FAMILIES[family_of(name)].labels, "instance", "job", "le"}, name


def test_a_histogram_is_never_used_without_one_of_its_parts() -> None:
    for text in (RULES, *expressions()):
        for name in _NAME.findall(text):
            assert FAMILIES.get(name) is None or FAMILIES[name].type != "histogram", name


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_every_alert_has_a_page_and_every_page_its_alert() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES)
    pages = {page.stem for page in (ROOT / "docs/runbooks").glob("Windlass*.md")}
    assert sorted(alerts) == sorted(pages)
    index = (ROOT / "docs/runbooks/README.md").read_text()
    for alert in alerts:
        assert f"runbook_url: docs/runbooks/{alert}.md" in RULES
        assert f"({alert}.md)" in index
        text = (ROOT / f"docs/runbooks/{alert}.md").read_text()
        for section in ("## What it means", "## How to look", "## How to fix it"):
            assert section in text


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_the_docs_tell_of_every_metric(family: Any) -> None:
    labels = ", ".join(family.labels)
    row = f"| `{family.name}` | {family.type} | {labels} | {family.doc} |"
    assert row in (ROOT / "docs/metrics.md").read_text().splitlines()
