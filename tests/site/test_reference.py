"""Everything that the code offers has its place in the reference, and what has none is found."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace

import pytest

import windlass
from tools.site.coverage import without_place
from tools.site.links import Document
from tools.site.reference import CHAPTERS, api, errors, generated_pages, json_fields, options
from tools.site.reference import settings as settings_page
from tools.site.reference.chapter import Chapter
from tools.site.reference.docstrings import argument_docs, attribute_docs, prose, section
from windlass.app.registration.job_options import JobOptions
from windlass.core.document_fields import SHAPES
from windlass.core.schedules.definition import Manner
from windlass.settings import describe_settings

_ID = re.compile(r'id="([^"]+)"|\{ #(\S+) \}|^::: (\S+)', re.MULTILINE)
BY_PATH = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.path)


def documents() -> dict[str, Document]:
    """Return the generated pages with their anchors, as the built ones have them."""
    return {
        page.path: Document(ids={next(filter(None, each)) for each in _ID.findall(page.text)})
        for page in generated_pages()
    }


@BY_PATH
def test_every_name_of_the_code_has_its_place(chapter: Chapter) -> None:
    assert list(without_place([chapter], documents())) == []
    assert len(set(chapter.names())) >= 6


@BY_PATH
def test_a_name_without_a_place_is_found_with_the_remedy(chapter: Chapter) -> None:
    grown = replace(chapter, names=lambda: [*chapter.names(), "brand_new"])
    (found,) = without_place([grown], documents())
    assert f"{chapter.subject} brand_new has no place in the reference; " in found
    assert found.endswith(chapter.remedy)


def test_an_error_without_a_remedy_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windlass.QueueFull, "__doc__", "A bounded queue has no room.")
    (found,) = without_place([errors.CHAPTER], documents())
    assert "QueueFull" in found


def test_an_option_without_a_text_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    known = attribute_docs(JobOptions)
    del known["breaker"]
    known |= attribute_docs(Manner)
    monkeypatch.setattr(options, "attribute_docs", lambda _: known)
    (found,) = without_place([options.CHAPTER], documents())
    assert "option of @app.job or using breaker" in found


def test_a_json_field_without_a_meaning_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    without = {
        shape: {name: field for name, field in fields.items() if name != "clock_ahead"}
        for shape, fields in SHAPES.items()
    }
    monkeypatch.setattr(json_fields, "SHAPES", without)
    (found,) = without_place([json_fields.CHAPTER], documents())
    assert "JSON field clock_ahead" in found


def test_a_public_name_on_no_page_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "PARTS", api.PARTS[1:])
    found = list(without_place([api.CHAPTER], documents()))
    assert any("public name windlass.Windlass " in each for each in found)


def test_a_setting_without_a_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [each for each in describe_settings() if each.field != "lease"]
    monkeypatch.setattr(settings_page, "describe_settings", lambda: known)
    (found,) = without_place([settings_page.CHAPTER], documents())
    assert "setting lease" in found


def test_every_error_has_its_own_remedy_in_its_docstring() -> None:
    for name in errors.CHAPTER.names():
        doc = inspect.cleandoc(getattr(windlass, name).__doc__ or "")
        assert section(doc, "Remedy"), name
        assert prose(doc), name


def test_arguments_and_their_continued_lines_are_read() -> None:
    def call(queue: str, tx: object) -> None:
        """Do it.

        Args:
            queue: The queue.
            tx: A connection
                of your own: yours.

        Raises:
            ValueError: never.
        """

    assert argument_docs(call) == {"queue": "The queue.", "tx": "A connection of your own: yours."}
