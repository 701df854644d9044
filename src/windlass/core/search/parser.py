"""Owns the reading of a search: text becomes terms, and a mistake is named with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NoReturn

from windlass.core.jobs.ids import read_id
from windlass.core.jobs.states import State
from windlass.core.payloads.secret import MARK
from windlass.core.search.errors import SearchError
from windlass.core.search.search import Search
from windlass.core.search.terms import RETRYING, SINGLE, WITH_PATH, Field, Term, Value, quoted
from windlass.core.search.times import read_moment
from windlass.core.values.names import nearest

MAX_CHARACTERS = 2_000
MAX_TERMS = 30
MAX_VALUES = 50
MAX_STEPS = 20
STATES = (*(state.value for state in State), RETRYING)
_NAMED = tuple(field.value for field in Field if field is not Field.TEXT)
_REFUSED = re.compile("[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")
_SPACE = re.compile(r"\s*")
_NAME = re.compile(r'[^\s:."]+')
_WORD = re.compile(r'[^\s"]+')
_STEP = re.compile(r'[^\s.:"]+')
_VALUE = re.compile(r'[^\s,"]+')
_QUOTE = re.compile(r'"((?:[^"\\]|\\["\\])*+)("?)')
_ESCAPE = re.compile(r'\\(["\\])')


def parse(text: str) -> Search:
    """Read a search.

    Raises:
        TypeError: it is no text.
        SearchError: it cannot be read; `position` is the place of the mistake.
    """
    if not isinstance(text, str):
        raise TypeError(f"search must be text, got {text!r}; write it like 'state:dead since:2h'")
    if len(text) > MAX_CHARACTERS:
        remedy = "leave terms out"
        _refuse(f"have at most {MAX_CHARACTERS:,} characters", f"{len(text):,}", remedy, 0)
    if odd := _REFUSED.search(text):
        remedy = "leave it out"
        _refuse("have no control characters", repr(odd[0]), remedy, odd.start())
    return Search(terms=tuple(_Reader(text).terms()))


def _refuse(condition: str, got: str, remedy: str, position: int) -> NoReturn:
    raise SearchError(f"a search must {condition}, got {got}; {remedy}", position)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._seen: set[Field] = set()

    def terms(self) -> Iterator[Term]:
        count = 0
        while self._skip_space():
            start, count = self._at, count + 1
            if count > MAX_TERMS:
                _refuse(f"have at most {MAX_TERMS} terms", "more", "leave some out", start)
            term = self._term()
            self._end_of(term)
            if term.field in SINGLE and not term.negated:
                self._only_once(term, start)
            yield term

    def _only_once(self, term: Term, start: int) -> None:
        if term.field in self._seen:
            name = term.field.value
            remedy = "leave one out"
            if term.field not in (Field.SINCE, Field.UNTIL):
                remedy = f"for one or the other, write {name}:A,B"
            raise SearchError(f"{name} must be given once, got it twice; {remedy}", start)
        self._seen.add(term.field)

    def _skip_space(self) -> bool:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._at < len(self._text)

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _end_of(self, term: Term) -> None:
        if (follows := self._next()) and not follows.isspace():
            raise SearchError(
                f"{term} must be followed by a space, got {follows!r}; quote a value that has "
                'spaces, commas or quotes, like key:"a, b"',
                self._at,
            )

    # -- one term ------------------------------------------------------------------------------

    def _term(self) -> Term:
        start = self._at
        negated = self._next() == "-"
        self._at += negated
        if negated and (not self._next() or self._next().isspace() or self._next() == "-"):
            raise SearchError(
                f"- must stand before a term, got {self._text[start : start + 2]!r}; write it like "
                '-queue:bulk, and quote text that begins with it: "-x"',
                start,
            )
        if self._next() == '"':
            return self._text_term(self._quote(), negated=negated, start=start)
        name = _NAME.match(self._text, self._at)
        word = _WORD.match(self._text, self._at)
        if name is not None and self._is_field(name):
            return self._field_term(Field(name[0].lower()), name.end(), negated=negated)
        if word is None or ":" in word[0]:
            self._unknown_field("" if word is None else word[0])
        self._at = word.end()
        return self._text_term(word[0], negated=negated, start=start)

    def _text_term(self, text: str, *, negated: bool, start: int) -> Term:
        if not text.strip():
            raise SearchError(
                f"text must not be empty, got {quoted(text)}; leave it out, or write error:* for "
                "any error",
                start,
            )
        return Term(field=Field.TEXT, values=(Value(text),), negated=negated)

    def _is_field(self, name: re.Match[str]) -> bool:
        follows = self._text[name.end() : name.end() + 1]
        known = name[0].lower()
        if follows == ".":
            return known in WITH_PATH or (known in _NAMED and self._has_colon(name))
        return follows == ":" and known in _NAMED

    def _has_colon(self, name: re.Match[str]) -> bool:
        word = _WORD.match(self._text, name.start())
        return word is not None and ":" in word[0]

    def _unknown_field(self, word: str) -> NoReturn:
        name = word.partition(":")[0]
        near = nearest(name.lower(), _NAMED)
        meant = f"did you mean {near}:? " if near else ""
        raise SearchError(
            f"the field of a term must be among {', '.join(_NAMED)}, got {name!r}; {meant}For a "
            f"value in the payload write payload.{name or 'name'}:…, for text in the error quote "
            f"it: {quoted(word)}",
            self._at,
        )

    def _field_term(self, field: Field, end: int, *, negated: bool) -> Term:
        start, self._at = self._at, end
        path = self._path(field, start)
        if self._next() != ":":
            written = self._text[start : self._at]
            raise SearchError(
                f"{written} must have a value, got none; write {written}:42, or {written}:* for "
                "any value",
                self._at,
            )
        self._at += 1
        places: list[int] = []
        values: list[Value] = []
        while True:
            places.append(self._at)
            values.append(self._value(field))
            if self._next() != ",":
                break
            self._at += 1
            if len(values) >= MAX_VALUES:
                remedy = "leave some out"
                _refuse(f"have at most {MAX_VALUES} values in a term", "more", remedy, self._at)
        if field is Field.STATE:
            values = [Value(value.text.lower(), value.is_prefix) for value in values]
        for value, place in zip(values, places, strict=True):
            _check(field, value, place)
        if field in (Field.SINCE, Field.UNTIL):
            _check_time(field, values, start, negated=negated)
        return Term(field=field, path=path, values=tuple(values), negated=negated)

    def _path(self, field: Field, start: int) -> tuple[str, ...]:
        steps: list[str] = []
        while self._next() == ".":
            self._at += 1
            place = self._at
            if field not in WITH_PATH:
                raise SearchError(
                    f"{field} must be followed by a colon, got {self._text[start:place]!r}; only "
                    "payload and header have names inside",
                    place - 1,
                )
            steps.append(self._step(field, place))
        if field in WITH_PATH and not steps:
            example = "payload.order.id:42" if field is Field.PAYLOAD else "header.trace:4bf9*"
            raise SearchError(
                f"{field} must be followed by a name, got {field}:; write it like {example}",
                self._at,
            )
        if len(steps) > MAX_STEPS:
            remedy = "search for a value nearer to the top"
            _refuse(f"have at most {MAX_STEPS} names in a path", f"{len(steps)}", remedy, start)
        return (".".join(steps),) if field is Field.HEADER else tuple(steps)

    def _step(self, field: Field, place: int) -> str:
        if self._next() == '"':
            step = self._quote()
        else:
            found = _STEP.match(self._text, self._at)
            if found is None:
                raise SearchError(
                    f"each name after {field} must have a character, got an empty one; quote a "
                    f'name that is empty or has dots: {field}."a.b":1',
                    place,
                )
            step, self._at = found[0], found.end()
        if step == MARK:
            raise SearchError(
                f"a name in the payload must not be {MARK}, got it; secrets are encrypted and "
                "cannot be searched",
                place,
            )
        return step

    # -- one value -----------------------------------------------------------------------------

    def _value(self, field: Field) -> Value:
        if self._next() == '"':
            text = self._quote()
            has_star = self._next() == "*"
            self._at += has_star
            return Value(text, has_star)
        found = _VALUE.match(self._text, self._at)
        if found is None:
            raise SearchError(
                f"{field} must have a value after each colon and comma, got none; write it "
                f"without a space, like {field}:VALUE",
                self._at,
            )
        self._at = found.end()
        text = found[0]
        return Value(text[:-1], True) if text.endswith("*") else Value(text)

    def _quote(self) -> str:
        found = _QUOTE.match(self._text, self._at)
        if found is None or not found[2]:
            is_escape = found is not None and self._text.startswith("\\", found.end())
            place = found.end() if found is not None and is_escape else self._at
            raise SearchError(
                "a quote must be closed, and a \\ in it be followed by a quote or another \\, got "
                f"{self._text[place : place + 20]}; write a \\ as \\\\",
                place,
            )
        self._at = found.end()
        return _ESCAPE.sub(r"\1", found[1])


def _check(field: Field, value: Value, place: int) -> None:
    text = value.text
    if not text and not value.is_prefix and field not in WITH_PATH:
        raise SearchError(
            f'{field} must have a value, got ""; for jobs without one write -{field}:*', place
        )
    if field is Field.STATE and (value.is_prefix or text not in STATES):
        near = nearest(text, STATES)
        meant = f"did you mean {near}?" if near else "write it like state:dead,retrying"
        raise SearchError(
            f"state must be among {', '.join(STATES)}, got {str(value)!r}; {meant}", place
        )
    if field is Field.ID or (field is Field.FLOW and not value.is_any):
        try:
            read_id(text)
        except ValueError as error:
            raise SearchError(str(error), place) from None


def _check_time(field: Field, values: list[Value], start: int, *, negated: bool) -> None:
    other = Field.UNTIL if field is Field.SINCE else Field.SINCE
    if negated:
        raise SearchError(
            f"{field} must not be negated, got -{field}; write {other}: instead", start - 1
        )
    (value, *more) = values
    try:
        if more or value.is_prefix:
            raise ValueError
        read_moment(value.text)
    except ValueError:
        got = ",".join(map(str, values))
        raise SearchError(
            f"{field} must be a duration, a time, a day or an instant, got {got!r}; write it like "
            f"{field}:2h, {field}:12:30, {field}:2026-03-01 or {field}:2026-03-01T09:00Z",
            start,
        ) from None
