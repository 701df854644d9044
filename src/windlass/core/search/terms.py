"""Owns the terms of a search: a field, the values that it may have, and how a term is written."""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import Struct

RETRYING = "retrying"
"""A state for people: scheduled, after a failure."""
_QUOTED = re.compile(r'["\\]')
_PLAIN_WORD = re.compile(r'[^\s":.-][^\s":.]*')
_PLAIN_VALUE = re.compile(r'[^\s",*]+')
_PLAIN_STEP = re.compile(r'[^\s".:]+')


class Field(StrEnum):
    """What a term is about."""

    ID = "id"
    KIND = "kind"
    QUEUE = "queue"
    STATE = "state"
    SINCE = "since"
    UNTIL = "until"
    KEY = "key"
    ERROR = "error"
    WORKER = "worker"
    FLOW = "flow"
    TAG = "tag"
    PAYLOAD = "payload"
    HEADER = "header"
    TEXT = "text"
    """Text without a field, in the error, its fingerprint, the reason or the id."""


WITH_PATH = frozenset({Field.PAYLOAD, Field.HEADER})
"""Fields that are followed by the name of what is inside: `payload.order.id`."""
SINGLE = frozenset(Field) - {Field.TAG, Field.TEXT, Field.ERROR, *WITH_PATH}
"""Fields of which a job has one value, so that two terms about it would contradict each other."""


class Value(Struct, frozen=True):
    """A value that a field may have, or with which it may begin."""

    text: str
    is_prefix: bool = False
    """Written with a star at its end; a star alone is any value."""

    @property
    def is_any(self) -> bool:
        """Whether every value matches."""
        return self.is_prefix and not self.text

    def __str__(self) -> str:
        star = "*" if self.is_prefix else ""
        return f"{self.text}{star}" if _PLAIN_VALUE.fullmatch(self.text) else self._quoted(star)

    def _quoted(self, star: str) -> str:
        return star if self.is_any else f"{quoted(self.text)}{star}"


class Term(Struct, frozen=True, kw_only=True):
    """A condition: the field has one of the values; or, if negated, none of them."""

    field: Field
    values: tuple[Value, ...]
    path: tuple[str, ...] = ()
    """The steps to a value inside a payload, or the name of a header."""
    negated: bool = False

    def __str__(self) -> str:
        sign = "-" if self.negated else ""
        if self.field is Field.TEXT:
            (value,) = self.values
            plain = _PLAIN_WORD.fullmatch(value.text)
            return f"{sign}{value.text if plain else quoted(value.text)}"
        name = ".".join([self.field.value, *map(_step, self.path)])
        return f"{sign}{name}:{','.join(map(str, self.values))}"


def quoted(text: str) -> str:
    """Write text in quotes."""
    return '"' + _QUOTED.sub(lambda match: f"\\{match[0]}", text) + '"'


def _step(step: str) -> str:
    return step if _PLAIN_STEP.fullmatch(step) else quoted(step)
