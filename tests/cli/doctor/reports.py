"""Owns how tests read the report of `windlass doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


def problems(shell: Shell, *args: object) -> list[dict[str, str]]:
    said = shell("doctor", *args, "--json")
    report: dict[str, Any] = said.json
    assert report["ok"] is (not report["problems"]) is (said.code == 0)
    findings = report["problems"] + report["warnings"] + report["notes"]
    assert all(each["problem"] and each["remedy"] for each in findings)
    found: list[dict[str, str]] = report["problems"]
    return found
