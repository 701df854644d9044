"""The check of words finds banned ones in messages, docstrings, comments and pages."""

from __future__ import annotations

import pytest

from tools import check_words
from tools.check_words import in_page, in_script, in_source, in_test_names

MESSAGE = 'raise ValueError("the worker shall stop")'  # words: allow
DOCSTRING = '"""Owns what was told to whoever asks."""'  # words: allow
COMMENT = "limit = 3  # Asked in vain."  # words: allow


def test_a_banned_word_in_a_message_is_found() -> None:
    (place,) = in_source("a.py", f"import b\n{MESSAGE}\n")
    assert place.startswith("a.py:2: 'shall'")  # words: allow


def test_banned_words_in_docstrings_and_comments_are_found() -> None:
    places = [place.split(" is ")[0] for place in in_source("a.py", f"{DOCSTRING}\n{COMMENT}\n")]
    assert places == ["a.py:1: 'told'", "a.py:1: 'whoever'", "a.py:2: 'in vain'"]  # words: allow


@pytest.mark.parametrize("name", ["a.sql", "a.lua"])
def test_a_banned_word_in_a_script_is_found(name: str) -> None:
    (place,) = in_script(name, "-- It runs.\n-- It shall run.\n")  # words: allow
    assert place.startswith(f"{name}:2: 'shall'")  # words: allow


@pytest.mark.parametrize("word", ["told", "heeded"])  # words: allow
def test_a_banned_word_is_found_as_a_key_too(word: str) -> None:
    assert len(list(in_source("a.py", f'message = {{"{word}": 1}}\n'))) == 1
    assert len(list(in_page("a.md", f'The key `"{word}"` of the answer.\n'))) == 1


@pytest.mark.parametrize("place", ["examples .py", "src/windlass/store/redis .lua"])
def test_examples_and_lua_scripts_are_read(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, suffix = place.split()
    read: list[str] = []

    def note(name: str, _text: str) -> list[str]:
        read.append(name)
        return []

    monkeypatch.setattr(check_words, "in_source", note)
    monkeypatch.setattr(check_words, "in_script", note)
    assert not list(check_words._in_sources())
    assert [name for name in read if name.startswith(folder) and name.endswith(suffix)]


@pytest.mark.parametrize("name", ["what_runs_is_finished", "who_waits_is_woken", "a_pause_is_told"])
def test_a_test_whose_name_hides_its_subject_is_found(name: str) -> None:
    (place,) = in_test_names("test_a.py", f"import b\n\n\nasync def test_{name}(app) -> None:\n")
    assert place.startswith(f"test_a.py:4: test_{name} must name its subject")
    assert not list(
        in_test_names("test_a.py", "def test_a_worker_that_drains_finishes() -> None:\n")
    )


def test_a_banned_word_in_a_page_is_found_outside_of_code() -> None:
    page = "Plain.\n```\nshall\n```\nIt shall run.\n"  # words: allow
    assert [place.split(" is ")[0] for place in in_page("a.md", page)] == [
        "a.md:5: 'shall'"  # words: allow
    ]


@pytest.mark.parametrize("line", [MESSAGE, COMMENT])
def test_a_line_that_says_so_may_have_one(line: str) -> None:
    assert not list(in_source("a.py", f"{line}  # words: allow\n"))
    assert not list(in_page("a.md", "It shall run. <!-- words: allow -->"))
