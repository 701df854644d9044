"""What pages have people type is understood by the command line; nothing is run."""

from __future__ import annotations

import re
import shlex
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer

from windlass.cli.root_command import cli

ROOT = Path(__file__).parents[2]
RUNBOOKS = sorted((ROOT / "docs/runbooks").glob("*.md"))
EXAMPLES = sorted((ROOT / "examples").glob("*/README.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *RUNBOOKS, *EXAMPLES]
_ENDS = {"|", "&", "&&", ">", ";"}
STAND_INS = {"ID": "0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69", "PID": "1"}
"""For what a reader puts in, where not any word will do."""
_TYPED = re.compile(r"(?<!`)`windlass\s+([^`]+)`(?!`)")
_FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_SHELL = re.compile(r"^ *```(?:sh|console|text)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^ *(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?windlass ([a-z].*)$", re.MULTILINE)


def typed(page: Path) -> list[list[str]]:
    """Return the commands within a page's sentences."""
    text = _FENCED.sub("", page.read_text("utf-8"))
    lines = [shlex.split(found) for found in _TYPED.findall(text)]
    return [line for line in lines if not line[0].isupper()]


def in_blocks(page: Path) -> list[list[str]]:
    """Return the commands in a page's blocks, up to a pipe or a comment."""
    lines = [
        found
        for block in _SHELL.findall(page.read_text("utf-8"))
        for found in _LINE.findall(block.replace("\\\n", " "))
    ]
    words = [shlex.split(line, comments=True) for line in lines]
    return [list(takewhile(lambda word: word not in _ENDS, each)) for each in words]


def found(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that is meant, maybe a group of them, and what is said to it."""
    command: Any = typer.main.get_command(cli)
    while words and hasattr(command, "get_command"):
        inner = command.get_command(typer.Context(command), words[0])
        assert inner is not None, f"there is no {words[0]!r} in {command.name}"
        command, words = inner, words[1:]
    return command, [STAND_INS.get(word, word) for word in words]


def _root() -> typer.Context:
    root: Any = typer.main.get_command(cli)
    return typer.Context(root, **root.context_settings)


def ids(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_and_option_that_a_page_names_is_there(page: Path) -> None:
    for words in (*typed(page), *in_blocks(page)):
        command, rest = found(words)
        options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
        named = {word.partition("=")[0] for word in rest if word.startswith("-")}
        assert named <= options | {"-h", "--help"}, words


@pytest.mark.parametrize("page", RUNBOOKS, ids=ids)
def test_commands_in_runbooks_are_complete(page: Path) -> None:
    """At night nobody wants to be told that an argument is missing."""
    for words in typed(page):
        command, rest = found(words)
        assert not hasattr(command, "get_command"), f"{words} only prints its help"
        # With its parent: a command keeps the help options of its first context.
        command.make_context("windlass", list(rest), parent=_root())
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        takes = {each.name for each in arguments} - {"app"}  # For that there is WINDLASS_APP.
        assert rest or not takes, f"{words} has to be told what"
