"""Owns the template language, and which templates make a project.

Templates are files below `templates/`, in a directory for each layer; a later layer replaces files
of an earlier one. `<<name>>` inserts a value. Lines between `%% if redis sqlite` and `%% end` are
kept if one of the words was chosen, those of `%% if not django` if none was. A file of which no
line is kept is not written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from windlass.cli.new.choices import Choices, StoreChoice

_SUFFIX = ".tmpl"
_VALUE = re.compile(r"<<(\w+)>>")
_CONDITION = "%% if "
_NEGATION = "not "
_END = "%% end"
_PACKAGE = "src/package/"


@dataclass(frozen=True, kw_only=True, order=True)
class File:
    """A file to write: its path below the directory of the project, and its text."""

    path: str
    text: str


def project_files(choices: Choices) -> list[File]:
    """Return the files of a whole project."""
    return _rendered(_layers(choices), choices.words, choices.values)


def code_files(choices: Choices) -> list[File]:
    """Return the files for a project that exists: an app, its handlers, and their tests."""
    return _rendered(["code"], choices.words, choices.values)


def handler_files(package: str, handler: str, *, django: bool) -> list[File]:
    """Return the files of another handler: its module, and its test."""
    choices = Choices(package=package, features=frozenset(["django"] if django else []))
    values = choices.values | {"handler": handler, "class": handler.title().replace("_", "")}
    return _rendered(["handler"], choices.words, values)


def _layers(choices: Choices) -> list[str]:
    if "django" in choices.features:
        return ["project", "django"]
    own = "postgres" if choices.store is StoreChoice.POSTGRES else "outbox"
    return ["code", "project", own, *sorted(choices.features & {"fastapi"})]


def _rendered(
    layers: Sequence[str], words: Collection[str], values: Mapping[str, str]
) -> list[File]:
    texts: dict[str, str] = {}
    for layer in layers:
        for path, template in _templates(layer):
            place = render(path.replace(_PACKAGE, f"src/{values['path']}/"), words, values)
            texts[place] = render(template, words, values)
    return sorted(File(path=path, text=text) for path, text in texts.items() if text)


def _templates(layer: str) -> Iterator[tuple[str, str]]:
    """Yield the templates of a layer, by the paths of the files that they become."""
    yield from _below(files("windlass.cli.new").joinpath("templates", layer), "")


def _below(directory: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _below(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            yield prefix + entry.name.removesuffix(_SUFFIX), entry.read_text("utf-8")


def render(template: str, words: Collection[str], values: Mapping[str, str]) -> str:
    """Return a template without the lines whose condition does not hold, and with its values."""
    kept: list[str] = []
    conditions: list[bool] = []
    for line in template.splitlines(keepends=True):
        bare = line.strip()
        if bare.startswith(_CONDITION):
            conditions.append(_holds(bare.removeprefix(_CONDITION), words))
        elif bare == _END:
            conditions.pop()
        elif all(conditions):
            kept.append(line)
    return _VALUE.sub(lambda found: values[found[1]], "".join(kept))


def _holds(condition: str, words: Collection[str]) -> bool:
    if condition.startswith(_NEGATION):
        return not set(condition.removeprefix(_NEGATION).split()) & set(words)
    return bool(set(condition.split()) & set(words))
