"""The template language keeps lines by their conditions, and inserts values."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from windlass.cli.new.choices import FEATURES, Choices, StoreChoice, read_features
from windlass.cli.new.templates import render

TEMPLATES = Path(str(files("windlass.cli.new"))) / "templates"
WORDS = {"direct", *FEATURES, *(store.value for store in StoreChoice), "django5", "django6"}


def test_lines_are_kept_if_one_of_the_words_was_chosen() -> None:
    template = "a\n%% if redis sqlite\nb\n%% end\nc\n"
    assert render(template, {"redis"}, {}) == "a\nb\nc\n"
    assert render(template, {"postgres"}, {}) == "a\nc\n"


def test_lines_are_kept_if_none_of_the_words_was_chosen() -> None:
    template = "%% if not django fastapi\nb\n%% end\n"
    assert render(template, {"redis"}, {}) == "b\n"
    assert render(template, {"fastapi"}, {}) == ""


def test_a_condition_inside_another_needs_both() -> None:
    template = "%% if a\n%% if b\nx\n%% end\ny\n%% end\nz\n"
    assert render(template, {"a", "b"}, {}) == "x\ny\nz\n"
    assert render(template, {"a"}, {}) == "y\nz\n"
    assert render(template, {"b"}, {}) == "z\n"


def test_values_are_inserted_and_text_of_other_languages_is_left_alone() -> None:
    text = "<<package>> <<: *app ${{ x }} $$(y) {z} %s"
    assert render(text, (), {"package": "shop"}) == "shop <<: *app ${{ x }} $$(y) {z} %s"


def test_a_value_that_there_is_not_is_an_error() -> None:
    with pytest.raises(KeyError):
        render("<<pakage>>", (), {"package": "shop"})


def test_conditions_name_words_that_can_be_chosen_and_every_condition_ends() -> None:
    templates = list(TEMPLATES.rglob("*.tmpl"))
    assert templates
    for path in templates:
        text = path.read_text("utf-8")
        conditions = re.findall(r"^%% if (?:not )?(.*)$", text, re.MULTILINE)
        assert {word for each in conditions for word in each.split()} <= WORDS, path
        ends = re.findall(r"^%% (.*)$", text, re.MULTILINE)
        assert ends.count("end") == len(conditions) == len(ends) / 2, path


def test_features_are_read_in_any_order_and_spacing() -> None:
    assert read_features(" web, fastapi,") == {"fastapi", "web"}
    assert read_features("") == set()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("flask", "must be some of fastapi,django,web, got 'flask'; write it like"),
        ("fastapi,django", "must name one framework, got fastapi and django; "),
    ],
)
def test_features_that_there_are_not_or_exclude_each_other_are_refused(
    text: str, problem: str
) -> None:
    with pytest.raises(ValueError, match=f"--with {problem}"):
        read_features(text)


@pytest.mark.parametrize(("python", "word"), [((3, 11), "django5"), ((3, 13), "django6")])
def test_a_project_uses_the_tasks_framework_of_the_django_that_its_python_runs(
    python: tuple[int, int], word: str
) -> None:
    choices = Choices(package="shop", features=frozenset(["django"]), python=python)
    assert {"django5", "django6"} & choices.words == {word}
