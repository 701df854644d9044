"""Owns pydantic models in payloads and results: what is written reads back as an equal model.

Models are recognised by their methods, so that pydantic is never imported here.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec


def is_model(value: object) -> bool:
    """Return whether a value is a model."""
    return hasattr(type(value), "model_dump")


def is_model_class(hint: Any) -> bool:
    """Return whether a type is a model's."""
    return hasattr(hint, "model_validate")


def to_json(model: Any) -> Any:
    """Return the JSON form of a model: its fields by their names, without computed ones.

    Raises:
        TypeError: a field would be written as asterisks, and its value lost.
    """
    kind: Any = type(model)
    if not _is_of_pydantic(kind):
        return model.model_dump(mode="json")
    form = {"round_trip": True, "by_alias": not _reads_names(kind)}
    written = model.model_dump(mode="json", **form)
    if _may_hide(kind) and (field := _hidden(model.model_dump(**form), written)) is not None:
        raise TypeError(
            f"field {field!r} of {kind.__qualname__} would be stored as asterisks, and its value "
            "lost; give it as a parameter with the annotation Secret[str] of windlass"
        )
    return written


def from_json(kind: Any, value: Any) -> Any:
    """Return the model of a decoded JSON value; fields may have their names or their aliases."""
    if not _is_of_pydantic(kind):
        return kind.model_validate(value)
    # As JSON: a strict model takes dates as text there, and nowhere else.
    text = msgspec.json.encode(value)
    if _reads_names(kind):
        return kind.model_validate_json(text, by_alias=True, by_name=True)
    return kind.model_validate_json(text)


def _is_of_pydantic(kind: Any) -> bool:
    return hasattr(kind, "__pydantic_core_schema__")


@lru_cache(1_000)
def _reads_names(kind: Any) -> bool:
    """Return whether fields with an alias can be read by their names: since pydantic 2.11."""
    return "by_name" in inspect.signature(kind.model_validate_json).parameters


@lru_cache(1_000)
def _may_hide(kind: Any) -> bool:
    """Return whether a model has fields like SecretStr, in it or in a model of a field."""
    try:
        return b'"writeOnly":true' in msgspec.json.encode(kind.model_json_schema())
    except Exception:  # noqa: BLE001 - a type of the user's may have no schema, and raise anything.
        return True


def _hidden(value: Any, written: Any) -> str | None:
    """Return the path of a field that was written as what hides it, not as its value."""
    if hasattr(value, "get_secret_value"):
        is_asterisks = isinstance(written, str) and bool(written) and not written.strip("*")
        return "" if is_asterisks and written != value.get_secret_value() else None
    if isinstance(value, Mapping) and isinstance(written, Mapping):
        # Keys of other types than text are written as text, in the same order.
        pairs = zip(map(str, written), value.values(), written.values(), strict=False)
    elif isinstance(value, list | tuple | set | frozenset) and isinstance(written, list):
        pairs = zip(map(str, range(len(value))), value, written, strict=False)
    else:
        return None
    for name, inner, written_inner in pairs:
        if (path := _hidden(inner, written_inner)) is not None:
            return f"{name}.{path}" if path else name
    return None
