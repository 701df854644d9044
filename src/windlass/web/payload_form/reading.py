"""Owns how the inputs of a payload's form become a payload again.

The name of an input says what it holds, so that a form is read as it was shown, whatever happened
to the job or the handler since.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from windlass.core.payloads.json_checks import strict_json
from windlass.web.payload_form.names import PREFIX, Kind, read_name

_ABSENT = object()
_MAX_STEPS = 20


class FieldInvalid(ValueError):
    """An input that cannot be read; `field` is its path."""

    def __init__(self, path: tuple[str, ...], reason: str) -> None:
        super().__init__(path, reason)
        self.field = ".".join(path)
        self.reason = reason

    def __str__(self) -> str:
        return f"field {self.field!r}: {self.reason}" if self.field else self.reason


def is_form(given: Mapping[str, str]) -> bool:
    """Return whether a form has the fields of a payload."""
    return any(name.startswith(PREFIX) for name in given)


def payload_in(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the payload of a form.

    Raises:
        FieldInvalid: a number is none, or a field of JSON cannot be read.
    """
    inputs = [
        (*found, text) for name, text in given.items() if (found := read_name(name)) is not None
    ]
    meanings = {path: text for kind, path, text in inputs if kind == "if"}
    left_out = _groups_without_fields(inputs, meanings)
    payload: dict[str, Any] = {}
    for kind, path, text in inputs:
        if len(path) > _MAX_STEPS:
            raise FieldInvalid(path[:1], f"a form has at most {_MAX_STEPS} levels; edit it as JSON")
        if kind == "if" or _is_inside(path, left_out):
            continue
        if kind == "group":
            if left_out.get(path) != "absent":
                _put(payload, path, None if path in left_out else {})  # Before its fields.
            continue
        value = _value(kind, path, text, meanings.get(path, "absent"))
        if kind == "rest":
            for name, each in ({} if value is _ABSENT else value).items():
                _put(payload, (*path, name), each)
        elif value is not _ABSENT:
            _put(payload, path, value)
    return payload


def _groups_without_fields(
    inputs: Sequence[tuple[Kind, tuple[str, ...], str]], meanings: Mapping[tuple[str, ...], str]
) -> dict[tuple[str, ...], str]:
    """Return the groups in which nothing is filled in, with what that means: absent or null."""
    filled = {
        path[:length]
        for kind, path, text in inputs
        if kind not in ("if", "group") and text.strip()
        for length in range(len(path) + (kind == "rest"))
    }
    return {
        path: meanings[path]
        for kind, path, _ in inputs
        if kind == "group" and path not in filled and meanings.get(path) in ("absent", "null")
    }


def _is_inside(path: tuple[str, ...], groups: Collection[tuple[str, ...]]) -> bool:
    return any(path[:length] in groups for length in range(len(path)))


def _value(kind: Kind, path: tuple[str, ...], text: str, meaning: str) -> Any:
    if kind == "choice":
        return _ABSENT if text == "" else _json(path, text)
    if text if kind == "text" else text.strip():
        return text if kind == "text" else _read(kind, path, text)
    return {"absent": _ABSENT, "null": None, "empty": ""}.get(meaning, _ABSENT)


def _read(kind: Kind, path: tuple[str, ...], text: str) -> Any:
    if kind == "number":
        try:
            number = strict_json(text.strip())
        except ValueError:
            number = None
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise FieldInvalid(path, f"a number is expected, got {text.strip()!r}; correct it")
        return number
    value = _json(path, text)
    if kind == "rest" and not isinstance(value, dict):
        raise FieldInvalid(path, "other fields must be a JSON object; write them like {}")
    return value


def _json(path: tuple[str, ...], text: str) -> Any:
    try:
        return strict_json(text)
    except ValueError as error:
        raise FieldInvalid(path, f"it is not JSON: {error}; correct it") from None


def _put(payload: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *groups, last = path
    for step in groups:
        inner = payload.setdefault(step, {})
        if not isinstance(inner, dict):
            raise FieldInvalid(path, "it is inside of a field that is no group; reload the page")
        payload = inner
    payload[last] = value
