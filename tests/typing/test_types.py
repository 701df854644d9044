"""The type checker takes right calls, infers what they give, and refuses wrong ones.

Each line of `cases/*.py` says what is expected of it: `# R: type` for what is revealed, `# E: code`
for an error; every other line must be clean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from mypy import api

import windlass
from tests.support.postgres.fixtures import session_directory
from tests.support.postgres.shared import one_at_a_time

CASES = Path(__file__).parent / "cases"
SOURCE = Path(windlass.__file__).parents[1]
_REPORTED = re.compile(r"cases/(\w+\.py):(\d+): (error|note): (.*?)(?:  \[([\w-]+)\])?$")
_REVEALED = re.compile(r'Revealed type is "(.*)"')
Place = tuple[str, int]


@pytest.fixture(scope="module")
def reported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[Place, list[str]]:
    """What mypy says about every line of the cases, in one strict run for the whole session."""
    told = session_directory(request.config, tmp_path_factory) / "mypy.json"
    with one_at_a_time(told.with_suffix(".lock")):
        if not told.exists():
            found = checked(tmp_path_factory.mktemp("mypy"))
            told.write_text(json.dumps(list(found.items())))
    return {(file, line): said for (file, line), said in json.loads(told.read_text())}


def checked(directory: Path) -> dict[Place, list[str]]:
    """Run mypy over the cases, and return what it says about which line."""
    config = directory / "mypy.ini"
    config.write_text(f"[mypy]\nstrict = true\nmypy_path = {SOURCE}:{CASES.parent}\n")
    arguments = ["--config-file", str(config), "--cache-dir", str(directory / "cache")]
    arguments += ["--explicit-package-bases", "--namespace-packages", "--hide-error-context"]
    out, errors, _ = api.run([*arguments, *map(str, sorted(CASES.glob("*.py")))])
    assert errors == ""
    found: dict[Place, list[str]] = {}
    for line in out.splitlines():
        if (match := _REPORTED.search(line)) is None:
            continue
        file, number, kind, text, code = match.groups()
        if (revealed := _REVEALED.match(text)) is not None:
            found.setdefault((file, int(number)), []).append(f"R: {revealed[1]}")
        elif kind == "error":
            found.setdefault((file, int(number)), []).append(f"E: {code}")
    return found


def expectations() -> Iterator[tuple[Place, str]]:
    for path in sorted(CASES.glob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if (match := re.search(r"# ([RE]: .*)$", line)) is not None:
                yield (path.name, number), match[1]


EXPECTED = dict(expectations())


@pytest.mark.parametrize("place", EXPECTED, ids=lambda place: f"{place[0]}:{place[1]}")
def test_the_checker_says_what_the_case_expects(
    reported: dict[Place, list[str]], place: Place
) -> None:
    expected, said = EXPECTED[place], reported.get(place, [])
    if expected.startswith("E: "):
        assert {each.removeprefix("E: ") for each in said} == set(expected[3:].split(", "))
    else:
        short = [re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])|builtins\.", "", each) for each in said]
        wanted = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])|builtins\.", "", expected)
        assert short == [wanted]


def test_the_checker_says_nothing_about_any_other_line(reported: dict[Place, list[str]]) -> None:
    assert {place: said for place, said in reported.items() if place not in EXPECTED} == {}


def test_there_are_cases_of_both_sorts() -> None:
    assert sum(expected.startswith("E") for expected in EXPECTED.values()) > 20
    assert sum(expected.startswith("R") for expected in EXPECTED.values()) > 20
