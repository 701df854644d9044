"""Owns pydantic models in payloads and results: all fields that a model writes are read back.

Models are recognised by their methods, so that pydantic is never imported here.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Iterator, Mapping
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
    written = model.model_dump(mode="json", round_trip=True, by_alias=False)
    if b"*" in msgspec.json.encode(written):
        field = _hidden(model.model_dump(round_trip=True, by_alias=False), written)
        if field is not None:
            raise TypeError(
                f"field {field!r} of {kind.__qualname__} would be stored as asterisks, and its "
                "value lost; give it as a parameter with the annotation Secret[str] of windlass"
            )
    return written


def from_json(kind: Any, value: Any) -> Any:
    """Return the model of a decoded JSON value; fields have their names, or their aliases."""
    if not _is_of_pydantic(kind) or _validates_itself(kind):
        return kind.model_validate(value)
    # As JSON: a strict model takes dates as text there, and nowhere else.
    return kind.model_validate_json(msgspec.json.encode(value), **_keys_of(kind))


def _is_of_pydantic(kind: Any) -> bool:
    return hasattr(kind, "__pydantic_core_schema__")


@lru_cache(1_000)
def _validates_itself(kind: Any) -> bool:
    """Return whether a model has a `model_validate` of its own, which may read older forms."""
    owner = next(each for each in kind.__mro__ if "model_validate" in vars(each))
    return not owner.__module__.startswith("pydantic.")


@lru_cache(1_000)
def _keys_of(kind: Any) -> dict[str, bool]:
    """Return by which keys fields are read: names and aliases, where pydantic can (since 2.11).

    Names alone, if an alias is the name of another field, which would get its value.
    """
    if "by_name" not in inspect.signature(kind.model_validate_json).parameters:
        return {}
    is_ambiguous = any(map(_has_ambiguous_alias, _models_in(kind, set())))
    return {"by_name": True, "by_alias": not is_ambiguous}


def _has_ambiguous_alias(kind: Any) -> bool:
    fields = kind.model_fields
    return any(
        alias in fields and alias != name
        for name, field in fields.items()
        for alias in _aliases_of(field)
    )


def _aliases_of(field: Any) -> Iterator[str]:
    alias = field.validation_alias or field.alias
    # `AliasChoices` has several, and an `AliasPath` begins with one.
    for each in getattr(alias, "choices", [alias]):
        first = getattr(each, "path", [each])[0]
        if isinstance(first, str):
            yield first


def _models_in(hint: Any, seen: set[Any]) -> Iterator[Any]:
    """Yield the models in a type, and in the fields of those."""
    if isinstance(getattr(hint, "model_fields", None), dict):
        if hint not in seen:
            seen.add(hint)
            yield hint
            for field in hint.model_fields.values():
                yield from _models_in(field.annotation, seen)
    else:
        for inner in typing.get_args(hint):
            yield from _models_in(inner, seen)


def _hidden(value: Any, written: Any) -> str | None:
    """Return the path of a field that was written as what hides it, not as its value."""
    if hasattr(value, "get_secret_value"):
        is_masked = isinstance(written, str) and "*" in written
        return "" if is_masked and written != value.get_secret_value() else None
    pairs: Iterable[tuple[str, Any, Any]]
    if isinstance(value, Mapping) and isinstance(written, Mapping):
        by_text = {str(key): inner for key, inner in value.items()}
        pairs = ((key, by_text[key], written[key]) for key in written if key in by_text)
    elif isinstance(value, list | tuple | set | frozenset) and isinstance(written, list):
        pairs = zip(map(str, range(len(value))), value, written, strict=False)
    else:
        return None
    for name, inner, written_inner in pairs:
        if (path := _hidden(inner, written_inner)) is not None:
            return f"{name}.{path}" if path else name
    return None
