"""A release is refused unless its version, changelog and contents are right."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tools.release import (
    NEEDED,
    NotReleasable,
    check_contents,
    check_sources,
    read_version,
)
from windlass.version import __version__

ROOT = Path(__file__).parents[1]
CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 1.2.3\n\n- More.\n"
TEMPLATES = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))


def test_the_version_of_these_sources_is_found() -> None:
    assert read_version((ROOT / "src/windlass/version.py").read_text()) == __version__


@pytest.mark.parametrize("version", ["1.2.3.dev0", "1.2.3+local"])
def test_a_version_under_development_is_refused(version: str) -> None:
    with pytest.raises(NotReleasable, match="must be that of a release"):
        check_sources(version, CHANGELOG)


@pytest.mark.parametrize("version", ["1.2.4", "1.2", "2.3"])
def test_a_version_that_the_changelog_lacks_is_refused(version: str) -> None:
    check_sources("1.2.3", CHANGELOG)
    with pytest.raises(NotReleasable, match="must have a heading"):
        check_sources(version, CHANGELOG)


def test_lines_that_no_release_has_are_refused() -> None:
    changelog = CHANGELOG.replace("## Unreleased\n", "## Unreleased\n\n- Less.\n")
    with pytest.raises(NotReleasable, match=r"belong to '## 1\.2\.3'"):
        check_sources("1.2.3", changelog)


def test_a_wheel_has_what_users_need_and_only_that() -> None:
    names = [f"windlass-1.2.3.dist-info/{end}" if "/" not in end else end for end in NEEDED]
    check_contents(names)
    with pytest.raises(NotReleasable, match=r"py\.typed"):
        check_contents(name for name in names if "py.typed" not in name)
    with pytest.raises(NotReleasable, match=r"tests/a\.py"):
        check_contents([*names, "tests/a.py"])


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_of_issues_has_what_its_form_needs(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    if path.name == "config.yml":
        assert form["blank_issues_enabled"] is True
        return
    assert {"name", "description", "body"} <= set(form)
    assert all(part["attributes"]["label"] for part in form["body"])
    assert len({part["id"] for part in form["body"]}) == len(form["body"])
