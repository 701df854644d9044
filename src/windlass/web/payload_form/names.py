"""Owns the names of the inputs of a payload's form: what each holds, and where in the payload."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal["text", "number", "choice", "json", "rest", "group", "if"]
"""What an input holds; `if` says what an empty field means."""
PREFIX = "payload."
_KINDS = frozenset(get_args(Kind))


def input_name(kind: Kind, path: tuple[str, ...]) -> str:
    """Return the name of an input: `payload.text.address.city`."""
    return ".".join((PREFIX + kind, *map(_escaped, path)))


def read_name(name: str) -> tuple[Kind, tuple[str, ...]] | None:
    """Return what an input holds, and its path; None if it is no part of a payload."""
    if not name.startswith(PREFIX):
        return None
    kind, *path = name.removeprefix(PREFIX).split(".")
    if kind not in _KINDS:
        return None
    return kind, tuple(map(_unescaped, path))  # type: ignore[return-value]


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace(".", "~1")


def _unescaped(step: str) -> str:
    return step.replace("~1", ".").replace("~0", "~")
