"""Pyright, the checker of VS Code, says about the cases of tests/typing what mypy says.

The wheel `pyright` is a launcher: it fetches the checker itself from npm, and needs Node.js.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import windlass
from tests.typing.test_types import CASES, EXPECTED, Place

SOURCE = Path(windlass.__file__).parents[1]
ANOTHER_ANSWER = {("provided.py", 47)}
"""A NewType as the key of what is provided: pyright does not take it for a type."""
_REVEALED = re.compile(r'^Type of ".*" is "(.*)"$', re.DOTALL)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[Place, list[str]]:
    """Run pyright over a copy of the cases, and return what it says about which line."""
    if shutil.which("node") is None:
        pytest.skip("pyright needs Node.js")
    directory = tmp_path_factory.mktemp("pyright")
    shutil.copytree(CASES, directory / "cases")
    settings = {"include": ["cases"], "extraPaths": [str(SOURCE)], "typeCheckingMode": "standard"}
    (directory / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=200, check=False
    )
    found: dict[Place, list[str]] = {}
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        place = (Path(each["file"]).name, each["range"]["start"]["line"] + 1)
        found.setdefault(place, []).append(answer(each))
    return found


def answer(diagnostic: dict[str, Any]) -> str:
    if (revealed := _REVEALED.match(diagnostic["message"])) is not None:
        return f"R: {revealed[1]}"
    return f"E: {diagnostic['message']}"


def in_one_form(text: str) -> str:
    """Return a type as both checkers would write it."""
    text = re.sub(r"\b(?:\w+\.)+(?=[A-Za-z])", "", text)
    text = re.sub(r"^def (\(.*\)) -> ", r"\1 -> ", text)
    text = re.sub(r"^def (\(.*\))$", r"\1 -> None", text)
    return " | ".join(sorted(text.split(" | ")))


def test_pyright_refuses_what_mypy_refuses_and_nothing_else(
    reported: dict[Place, list[str]],
) -> None:
    wrong = {place for place, said in reported.items() if any(each[0] == "E" for each in said)}
    expected = {place for place, text in EXPECTED.items() if text.startswith("E")}
    assert wrong - ANOTHER_ANSWER == expected


def test_pyright_reveals_the_types_that_mypy_reveals(reported: dict[Place, list[str]]) -> None:
    expected = {
        place: in_one_form(text[3:])
        for place, text in EXPECTED.items()
        if text.startswith("R") and place not in ANOTHER_ANSWER
    }
    revealed = {
        place: in_one_form(each[3:])
        for place, said in reported.items()
        for each in said
        if each.startswith("R") and place not in ANOTHER_ANSWER
    }
    assert revealed == expected
