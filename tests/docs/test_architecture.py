"""Checks that the map of one job in docs/architecture.md is true: a real job passes each file."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import windlass
from tests.support.app_on_store import Bed, serving

SOURCE = Path(windlass.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
MOST_FILES = 10
MOST_WORDS = 30


def section(title: str) -> str:
    text = PAGE.read_text()
    return text.partition(f"\n## {title}")[2].partition("\n## ")[0]


def files_of_the_map() -> list[str]:
    return re.findall(r"^\d+\. `([\w/]+\.py)`", section("One job"), re.MULTILINE)


@contextmanager
def files_entered() -> Iterator[set[str]]:
    """Collect the files of Windlass in which a function is called meanwhile, in any thread."""
    entered: set[str] = set()
    prefix = f"{SOURCE}/"

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(prefix):
            entered.add(frame.f_code.co_filename.removeprefix(prefix))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield entered
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def test_every_path_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+\.(?:py|sql))`", PAGE.read_text()))
    assert len(named) > 20
    assert [path for path in sorted(named) if not (SOURCE / path).exists()] == []


@pytest.mark.parametrize("bed", ["postgres"], indirect=True)
def test_one_job_passes_through_every_file_of_the_map(bed: Bed) -> None:
    named = files_of_the_map()
    assert 5 <= len(named) <= MOST_FILES
    app = bed.app()

    @app.job
    async def greet(name: str) -> str:
        return f"hello {name}"

    async def main() -> set[str]:
        async with serving(app):
            # The start enters all parts of a worker, and each of its services ticks once.
            await (await greet.aenqueue("grace")).aresult("60s")
            with files_entered() as entered:
                handle = await greet.aenqueue("ada")
                assert await handle.aresult("60s") == "hello ada"
            return entered

    entered = asyncio.run(main())
    assert [path for path in named if path not in entered] == []


def test_the_glossary_is_short() -> None:
    cells = re.findall(r"^\| (?!word)([^|]+) \|", section("Glossary"), re.MULTILINE)
    words = [word for cell in cells for word in cell.split(", ")]
    assert 10 <= len(words) <= MOST_WORDS, words
