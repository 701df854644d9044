"""Owns suggestions for a search that is being typed: fields, then the values that are known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from windlass.core.search.parser import STATES
from windlass.core.search.terms import WITH_PATH, Field, Value

MAX_SUGGESTIONS = 20
FIELDS = MappingProxyType(
    {
        Field.KIND: "of a kind",
        Field.QUEUE: "of a queue",
        Field.STATE: "in a state",
        Field.SINCE: "enqueued since",
        Field.UNTIL: "enqueued until",
        Field.KEY: "with a key",
        Field.ERROR: "whose last error has a text, or is of a group",
        Field.WORKER: "that a worker runs, or ran last",
        Field.FLOW: "of a flow",
        Field.TAG: "with a tag",
        Field.PAYLOAD: "with a value in the payload",
        Field.HEADER: "with a header",
        Field.ID: "whose id begins like this",
    }
)
"""The fields, and which jobs each selects."""
_MOMENTS = ("15m", "1h", "6h", "1d", "7d")
_PIECE = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*(?:"|$))+')
_VALUE = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*(?:"|$))+')


class Suggestion(NamedTuple):
    """A text that may stand in place of what was typed from `start` to `end`."""

    text: str
    start: int
    end: int
    help: str = ""


def suggest(
    text: str, position: int, known: Mapping[str, Iterable[str]] = MappingProxyType({})
) -> list[Suggestion]:
    """Return how the term at a position may go on.

    `known` has the values of fields by their names; those of payload and header are paths.
    """
    typed = text[: max(position, 0)]
    start = _last(_PIECE, typed)
    start += typed.startswith("-", start)
    found = (
        Suggestion(each, begin, len(typed), about)
        for each, begin, about in _candidates(typed, start, known)
    )
    return [each for _, each in zip(range(MAX_SUGGESTIONS), found, strict=False)]


def _candidates(
    typed: str, start: int, known: Mapping[str, Iterable[str]]
) -> Iterator[tuple[str, int, str]]:
    piece = typed[start:]
    name, colon, values = piece.partition(":")
    field = name.partition(".")[0].lower()
    if not colon:
        yield from ((each, start, about) for each, about in _names(known) if _begins(each, piece))
        return
    begin = len(typed) - len(values) + _last(_VALUE, values)
    begun = typed[begin:].removeprefix('"')
    for each in _values(field, known):
        if _begins(each, begun):
            yield str(Value(each)), begin, ""


def _last(part: re.Pattern[str], typed: str) -> int:
    """Return where the last part begins, if it is still being typed."""
    starts = [each.start() for each in part.finditer(typed) if each.end() == len(typed)]
    return starts[-1] if starts else len(typed)


def _names(known: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str]]:
    for field, about in FIELDS.items():
        if field in WITH_PATH:
            yield f"{field}.", about
            yield from ((f"{field}.{path}:", about) for path in known.get(field.value, ()))
        else:
            yield f"{field}:", about


def _values(field: str, known: Mapping[str, Iterable[str]]) -> Iterable[str]:
    if field == Field.STATE:
        return STATES
    if field in (Field.SINCE, Field.UNTIL):
        return _MOMENTS
    return () if field in WITH_PATH else known.get(field, ())


def _begins(text: str, begun: str) -> bool:
    return text.lower().startswith(begun.lower()) and text != begun
