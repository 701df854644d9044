"""Owns the fields of a payload's form, made from its JSON schema and its present value.

A value that does not fit its schema, and what has no simple form, such as unions and lists, is a
field of JSON. So a form can hold every payload, and nothing of it is lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from windlass.core.payloads.secret import MARK
from windlass.web.payload_form.names import Kind, input_name

Schema = Mapping[str, Any]
MAX_FIELDS = 60
"""Number of fields above which a payload is edited as one JSON text."""
_MAX_DEPTH = 4
_ABSENT = object()
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_NAMED = re.compile(r"field `([^`]*)`")
_MOMENTS = {
    "date": "A day, like 2026-03-01.",
    "date-time": "Like 2026-03-01T09:00:00Z.",
    "time": "Like 09:00:00.",
    "duration": "Like PT5M.",
    "uuid": "A UUID.",
}
_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "matches {}",
}
If = Literal["absent", "null", "empty", "given"]


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of the form, or a group of fields."""

    path: tuple[str, ...]
    kind: Kind
    value: str = ""
    """As it is typed; of a choice, the option that is chosen."""
    required: bool = False
    hint: str = ""
    control: Literal["line", "lines", "day"] = "line"
    options: tuple[tuple[str, str], ...] = ()
    """Of a choice: what is sent, and what is shown."""
    empties: tuple[tuple[If, str], ...] = ()
    """What an empty field may mean, the present meaning first."""
    children: tuple[Field, ...] = ()

    @property
    def label(self) -> str:
        return self.path[-1] if self.path else "Other fields"

    @property
    def name(self) -> str:
        """The name of its input."""
        return input_name(self.kind, self.path)

    @property
    def empty_name(self) -> str:
        """The name of the input that says what an empty field means."""
        return input_name("if", self.path)

    @property
    def id(self) -> str:
        """The id of its input, in which every character may stand."""
        return "field-" + ".".join((self.kind, *self.path)).encode().hex()


def fields_of(
    schema: Schema | None, payload: Any, defaults: Mapping[str, Any] | None = None
) -> tuple[Field, ...] | None:
    """Return the fields of a payload; None: it has no form, and is edited as JSON.

    `defaults` are those of the handler's parameters.
    """
    if schema is None or not isinstance(payload, dict):
        return None
    root = _Shapes(schema).resolved(schema)
    if root is None or not _is_form(root):
        return None
    maker = _Maker(_Shapes(schema), defaults or {})
    fields = tuple(maker.of_object(root, payload, ()))
    return fields if 0 < _count(fields) <= MAX_FIELDS else None


def field_at(fields: tuple[Field, ...], place: str, reason: str = "") -> Field | None:
    """Return the field that an error means by its place, like `address.city` or `items[0].id`."""
    for each in fields:
        own = ".".join(each.path)
        if each.kind == "rest" or not (place == own or place.startswith((f"{own}.", f"{own}["))):
            continue
        named = _NAMED.search(reason) if place == own else None
        inner = place if named is None else f"{place}.{named[1]}"
        return (field_at(each.children, inner) if each.children else None) or each
    return next((each for each in fields if each.kind == "rest"), None)


def _count(fields: tuple[Field, ...]) -> int:
    return sum(1 + _count(each.children) for each in fields)


def _is_form(schema: Schema) -> bool:
    return schema.get("type") == "object" and bool(schema.get("properties"))


class _Shapes:
    """Resolves references to definitions, those of models within the schema, too."""

    def __init__(self, root: Schema) -> None:
        self._definitions: dict[str, Schema] = {}
        waiting: list[Any] = [root]
        while waiting:
            each = waiting.pop()
            if isinstance(each, Mapping):
                self._definitions |= each.get("$defs") or {}
                waiting.extend(each.values())
            elif isinstance(each, list):
                waiting.extend(each)

    def resolved(self, schema: Schema) -> Schema | None:
        """Return the schema itself, for a reference; None if it leads nowhere."""
        for _ in range(_MAX_DEPTH):
            reference = schema.get("$ref")
            if reference is None:
                return schema
            found = self._definitions.get(str(reference).rpartition("/")[2])
            if found is None:
                return None
            schema = {**found, **{name: schema[name] for name in schema if name != "$ref"}}
        return None

    def nullable(self, schema: Schema) -> tuple[Schema | None, bool]:
        """Return a schema without null, and whether it allowed null; None: it is a union."""
        resolved = self.resolved(schema)
        if resolved is None:
            return None, False
        parts = resolved.get("anyOf") or resolved.get("oneOf")
        if parts is None:
            return resolved, False
        others = [each for each in parts if each.get("type") != "null"]
        if len(others) != 1:
            return None, len(others) < len(parts)
        outer = {name: resolved[name] for name in ("description", "default") if name in resolved}
        inner = self.resolved(others[0])
        return None if inner is None else {**inner, **outer}, len(others) < len(parts)


class _Maker:
    def __init__(self, shapes: _Shapes, defaults: Mapping[str, Any]) -> None:
        self._shapes = shapes
        self._defaults = defaults

    def of_object(
        self, schema: Schema, value: Mapping[str, Any], path: tuple[str, ...]
    ) -> Iterator[Field]:
        required = set(schema.get("required") or ())
        known: Mapping[str, Schema] = schema.get("properties") or {}
        for name, each in known.items():
            yield self._of(each, value.get(name, _ABSENT), (*path, name), name in required)
        rest = {name: each for name, each in value.items() if name not in known}
        if rest:
            yield Field(
                path=path,
                kind="rest",
                value=_written(rest),
                control="lines",
                hint="Fields that the handler does not know, as a JSON object. They are kept, "
                "unless you delete them.",
                empties=(("absent", "not given"),),
            )

    def _of(self, schema: Schema, value: Any, path: tuple[str, ...], required: bool) -> Field:
        shape, null = self._shapes.nullable(schema)
        default = self._default(schema, path)
        empties = tuple(_empties(value, default, null=null, required=required))
        hint = _hint(shape or {}, schema)
        is_open = value is _ABSENT or (value is None and null)
        is_group = shape is not None and _is_form(shape) and len(path) < _MAX_DEPTH
        if shape is not None and is_group and (is_open or isinstance(value, dict)):
            inner = value if isinstance(value, dict) else {}
            given: tuple[If, str] = ("given", "given, with empty fields")
            if empties:
                empties = (*empties, given) if is_open else (given, *empties)
            return Field(
                path=path,
                kind="group",
                required=required,
                hint=hint,
                empties=empties,
                children=tuple(self.of_object(shape, inner, path)),
            )
        if shape is not None:
            place = _Place(
                path=path,
                value=value,
                required=required,
                is_open=is_open,
                empties=empties,
                hint=hint,
            )
            simple = _simple(shape, place)
            if simple is not None:
                return simple
        return Field(
            path=path,
            kind="json",
            value="" if value is _ABSENT else _written(value),
            required=required and not null,
            control="lines",
            hint=" ".join(filter(None, (hint, _json_hint(value, shape)))),
            empties=empties,
        )

    def _default(self, schema: Schema, path: tuple[str, ...]) -> Any:
        if len(path) == 1 and path[0] in self._defaults:
            return self._defaults[path[0]]
        return schema.get("default", _ABSENT)


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A place in a payload for which a field is made."""

    path: tuple[str, ...]
    value: Any
    required: bool
    is_open: bool
    """Whether there is no value yet, or null where that is allowed."""
    empties: tuple[tuple[If, str], ...]
    hint: str


def _simple(shape: Schema, place: _Place) -> Field | None:
    """Return a field of a plain type; None if the type, or the value, has no such field."""
    choices = [True, False] if shape.get("type") == "boolean" else shape.get("enum")
    if choices is not None:
        return _choice(choices, place)
    match shape.get("type"):
        case "string":
            return _text(shape, place)
        case "integer":
            return _number(place, int)
        case "number":
            return _number(place, int | float)
    return None


def _choice(choices: list[Any], place: _Place) -> Field | None:
    value = place.value
    fits = any(type(each) is type(value) and each == value for each in choices)
    if not (place.is_open or fits):
        return None
    sent = {"absent": "", "null": "null"}
    others = [(sent[what], word) for what, word in place.empties if what in sent]
    if not others and value is _ABSENT:
        others = [("", "choose")]
    return Field(
        path=place.path,
        kind="choice",
        value="" if value is _ABSENT else json.dumps(value),
        required=place.required,
        hint=place.hint,
        options=(*((json.dumps(each), _shown(each)) for each in choices), *others),
    )


def _text(shape: Schema, place: _Place) -> Field | None:
    value, empties = place.value, place.empties
    if not (place.is_open or (isinstance(value, str) and _is_plain(value))):
        return None
    own: tuple[If, str] = ("empty", "empty text")
    if empties:
        empties = (own, *empties) if value == "" else (*empties, own)
    text = value if isinstance(value, str) else ""
    is_day = shape.get("format") == "date" and (not text or _DAY.fullmatch(text))
    is_long = "\n" in text or "\t" in text
    return Field(
        path=place.path,
        kind="text",
        value=text,
        required=place.required,
        hint=place.hint,
        control="day" if is_day else "lines" if is_long else "line",
        empties=empties or _of_required_text(value),
    )


def _number(place: _Place, types: Any) -> Field | None:
    value = place.value
    fits = isinstance(value, types) and not isinstance(value, bool)
    if not (place.is_open or fits):
        return None
    return Field(
        path=place.path,
        kind="number",
        value="" if place.is_open else json.dumps(value),
        required=place.required,
        hint=place.hint,
        empties=place.empties,
    )


def _of_required_text(value: Any) -> tuple[tuple[If, str], ...]:
    own: tuple[If, str] = ("empty", "empty text")
    return (("absent", "not given"), own) if value is _ABSENT else (own,)


def _empties(value: Any, default: Any, *, null: bool, required: bool) -> Iterator[tuple[If, str]]:
    """Yield what an empty field may mean: the present value first."""
    found: list[tuple[If, str]] = []
    if not required:
        is_plain = isinstance(default, str | int | float | bool)
        word = f"not given: {_shown(default)}" if is_plain else "not given"
        found.append(("absent", word))
    if null:
        found.append(("null", "null"))
    yield from sorted(found, key=lambda each: each[0] == "absent" and value is None)


def _is_plain(text: str) -> bool:
    """Return whether a browser sends text back as it is, and a person sees all of it."""
    return text.replace("\n", "").replace("\t", "").isprintable() and text == text.strip("\n")


def _written(value: Any) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text if _is_plain(text) else json.dumps(value, indent=2)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


def _hint(shape: Schema, schema: Schema) -> str:
    described = str(schema.get("description") or shape.get("description") or "")
    bounds = [
        text.format(shape[name])
        for name, text in _BOUNDS.items()
        if name in shape and not (name == "pattern" and "format" in shape)
    ]
    said = ", ".join(bounds)
    if "format" in shape:
        said = _MOMENTS.get(shape["format"], said)
    elif shape.get("contentEncoding") == "base64":
        said = "Base64."
    elif said:
        said = said[0].upper() + said[1:] + "."
    return " ".join(filter(None, (described, said)))


def _json_hint(value: Any, shape: Schema | None) -> str:
    if isinstance(value, dict) and set(value) == {MARK}:
        return "Encrypted: leave it as it is."
    if shape is not None and value is not _ABSENT and "type" in shape and not _fits(shape, value):
        return "JSON; the present value does not fit."
    return "JSON."


def _fits(shape: Schema, value: Any) -> bool:
    types: dict[str, Any] = {"array": list, "object": dict}
    return shape["type"] in types and isinstance(value, types[shape["type"]])
