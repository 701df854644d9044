"""The tutorial is one program: who does what its pages say has a running shop at each step."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs.edits import edit_of, outline
from tests.docs.test_docs import ROOT, STEPS, Reader, blocks_of, environment
from tests.docs.transcript import exchanges

__all__ = ["environment"]
_WHOLE = re.compile(r"# (\w+\.py)\n")
FIRST, *LATER = STEPS


def whole_files(page: str) -> dict[str, str]:
    """Return the files that a page shows as a whole, by their names."""
    texts = [block.text for block in blocks_of(page) if block.language == "python"]
    return {name[1]: text for text in texts if (name := _WHOLE.match(text))}


def finished_shop() -> dict[str, str]:
    """Return the files of a reader who has reached the end."""
    return {name: text for page in STEPS for name, text in whole_files(page).items()}


def trials() -> list[tuple[str, list[str]]]:
    """Return the programs that the pages run, each with the output that its page shows."""
    consoles = [
        block.text for page in STEPS for block in blocks_of(page) if block.language == "console"
    ]
    return [
        exchange
        for text in consoles
        for exchange in exchanges(text)
        if exchange.command.startswith("python ")
    ]


@pytest.mark.timeout(300)  # Ten pages, one after the other.
@pytest.mark.parametrize("page", ["docs/tutorial/"])
def test_the_shop_grows_from_page_to_page_in_one_directory(
    page: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Each page changes the files of the page before, and its programs print what it shows.

    A file that a page shows again is what the reader has by then: nothing was lost on the way.
    """
    with ExitStack() as background:
        for step in STEPS:
            reader = Reader(step, tmp_path, environment, background)
            for block in blocks_of(step):
                name = _WHOLE.match(block.text)
                if name and (file := tmp_path / name[1]).exists():
                    assert outline(block.text) == outline(file.read_text("utf-8")), step
                reader.follow(block)
            reader.catch_up()


@pytest.mark.parametrize("page", ["docs/tutorial/"])
def test_every_program_of_the_tutorial_prints_the_same_in_the_finished_shop(
    page: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    for name, text in finished_shop().items():
        (tmp_path / name).write_text(text, "utf-8")
    for command, shown in trials():
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        assert done.stdout.splitlines() == shown, command


@pytest.mark.parametrize("page", LATER)
def test_a_step_changes_the_shop_and_then_shows_the_whole_of_it(page: str) -> None:
    texts = [block.text for block in blocks_of(page) if block.language == "python"]
    edits = [number for number, text in enumerate(texts) if edit_of(text)]
    shop = [number for number, text in enumerate(texts) if text.startswith("# shop.py\n")]
    assert edits
    assert shop == [len(texts) - 1]


@pytest.mark.parametrize("page", STEPS)
def test_a_step_has_a_program_to_try_it_that_the_page_runs(page: str) -> None:
    name = f"try{1 + STEPS.index(page)}.py"
    assert name in whole_files(page)
    assert [command.split()[1] for command, _ in trials()][STEPS.index(page)] == name


@pytest.mark.parametrize("page", STEPS)
def test_the_shop_of_a_step_is_tidy(page: str, tmp_path: Path) -> None:
    """Readers would copy unused imports, and the site cuts off lines that are longer."""
    for step in STEPS[: 1 + STEPS.index(page)]:
        for name, text in whole_files(step).items():
            (tmp_path / name).write_text(text, "utf-8")
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--select", "E,F,I"], ["format", "--check"]):
        done = subprocess.run(
            [*ruff, *command, "--isolated", "--no-cache", "--line-length", "88", "."],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_the_index_explains_every_place_to_which_a_block_belongs() -> None:
    index = (ROOT / "docs/tutorial/index.md").read_text("utf-8")
    blocks = [block.text for page in STEPS for block in blocks_of(page)]
    assert {edit.place for text in blocks if (edit := edit_of(text))} == {
        place
        for place in ("top", "end", "below", "instead of")
        if f", at the {place}`" in index or f", {place} " in index
    }
