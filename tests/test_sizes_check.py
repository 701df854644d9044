"""The check of sizes finds files, functions and packages that are too large."""

from __future__ import annotations

import pytest

from tools import check_sizes
from tools.check_sizes import (
    MAX_FILE_LINES,
    MAX_FUNCTION_LINES,
    MAX_MODULES,
    in_file,
    in_functions,
    in_package,
)

COMMAND = "src/windlass/cli/commands/enqueue.py"


def function(lines: int) -> str:
    return "async def f() -> None:\n" + "    pass\n" * (lines - 1)


def test_a_file_that_is_too_long_is_found() -> None:
    assert list(in_file("a.py", "\n" * MAX_FILE_LINES)) == []
    (place,) = in_file("a.py", "\n" * (MAX_FILE_LINES + 1))
    assert place.startswith("a.py: must have at most 400 lines, has 401")


def test_a_function_that_is_too_long_is_found_unless_it_is_a_command() -> None:
    assert list(in_functions("a.py", function(MAX_FUNCTION_LINES))) == []
    (place,) = in_functions("a.py", function(MAX_FUNCTION_LINES + 1))
    assert place.startswith("a.py:1: f must have at most 50 lines, has 51")
    assert list(in_functions(COMMAND, function(MAX_FUNCTION_LINES + 1))) == []


def test_a_package_with_too_many_modules_is_found_unless_it_is_an_index() -> None:
    modules = [f"m{number}" for number in range(MAX_MODULES + 1)]
    assert list(in_package("src/windlass/core", modules[1:])) == []
    (place,) = in_package("src/windlass/core", modules)
    assert place.startswith("src/windlass/core: must have at most 12 modules, has 13")
    assert list(in_package("src/windlass/cli/commands", modules)) == []


def test_something_too_large_makes_the_check_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_sizes.main() == 0
    monkeypatch.setattr(check_sizes, "MAX_FILE_LINES", 300)
    assert check_sizes.main() == 1
    assert "must have at most 300 lines" in capsys.readouterr().out
