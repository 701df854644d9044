"""Owns the JSON schema of protobuf messages, from which a form is made."""

from __future__ import annotations

from typing import Any

from windlass.core.payloads.protobuf.fields import is_list, is_map, type_name

_MAX_DEPTH = 4
_MAX_FIELDS = 500
"""Beyond these, and where a message holds itself, a message is described as any object."""
_INTEGER = {"type": "integer"}
_LONG = {
    "type": "string",
    "pattern": "^-?[0-9]+$",
    "format": "int64",
    "description": "A whole number.",
}
_NUMBER = {"type": "number"}
_TEXT = {"type": "string"}
_BYTES = {"type": "string", "contentEncoding": "base64"}
_BOOL = {"type": "boolean"}
_SCALARS: dict[str, dict[str, Any]] = {
    "double": _NUMBER, "float": _NUMBER, "bool": _BOOL, "string": _TEXT, "bytes": _BYTES,
    "int32": _INTEGER, "uint32": _INTEGER, "fixed32": _INTEGER, "sfixed32": _INTEGER,
    "sint32": _INTEGER, "int64": _LONG, "uint64": _LONG, "fixed64": _LONG, "sfixed64": _LONG,
    "sint64": _LONG,
}  # fmt: skip
_ANYTHING: dict[str, Any] = {"title": "any value"}
_OBJECT: dict[str, Any] = {"type": "object"}
_LIBRARY: dict[str, dict[str, Any]] = {
    "Timestamp": {"type": "string", "format": "date-time"},
    "Duration": {"type": "string", "description": "Seconds, like 90s or 1.5s."},
    "FieldMask": {"type": "string", "description": "Names of fields, like user.name,count."},
    "Struct": _OBJECT,
    "Value": _ANYTHING,
    "ListValue": {"type": "array"},
    "Any": {**_OBJECT, "description": "A message, with its type's URL in the field @type."},
    "DoubleValue": _NUMBER,
    "FloatValue": _NUMBER,
    "Int64Value": _LONG,
    "UInt64Value": _LONG,
    "Int32Value": _INTEGER,
    "UInt32Value": _INTEGER,
    "BoolValue": _BOOL,
    "StringValue": _TEXT,
    "BytesValue": _BYTES,
}
"""The messages of protobuf itself whose JSON is not made of their fields."""


def message_schema(cls: type[Any]) -> dict[str, Any]:
    """Return the JSON schema of a message class, without references."""
    return _Describing().message(cls.DESCRIPTOR, ())


class _Describing:
    """One schema, whose size is bounded."""

    def __init__(self) -> None:
        self._left = _MAX_FIELDS

    def message(self, descriptor: Any, outer: tuple[str, ...]) -> dict[str, Any]:
        name = str(descriptor.full_name)
        package, _, short = name.rpartition(".")
        if package == "google.protobuf" and short in _LIBRARY:
            return _LIBRARY[short]
        titled = {**_OBJECT, "title": str(descriptor.name)}
        self._left -= len(descriptor.fields)
        if name in outer or len(outer) >= _MAX_DEPTH or self._left < 0:
            return titled
        required = [each.name for each in descriptor.fields if _is_required(each)]
        return {
            **titled,
            "properties": {
                str(each.name): self._field(each, (*outer, name)) for each in descriptor.fields
            },
            **({"required": required} if required else {}),
        }

    def _field(self, field: Any, outer: tuple[str, ...]) -> dict[str, Any]:
        if is_map(field):
            value = field.message_type.fields_by_name["value"]
            return {**_OBJECT, "additionalProperties": self._value(value, outer)}
        schema = self._value(field, outer)
        if is_list(field):
            return {"type": "array", "items": schema}
        oneof = field.containing_oneof
        if oneof is not None and len(oneof.fields) > 1:
            others = ", ".join(each.name for each in oneof.fields if each.name != field.name)
            schema = {**schema, "description": f"At most one of this and {others}."}
        return schema

    def _value(self, field: Any, outer: tuple[str, ...]) -> dict[str, Any]:
        if field.enum_type is not None:
            values = {int(each.number): str(each.name) for each in field.enum_type.values}
            named = ", ".join(f"{number} is {name}" for number, name in values.items())
            return {"enum": list(values), "description": f"{named}."}
        if field.message_type is not None:
            return self.message(field.message_type, outer)
        return _SCALARS[type_name(field)]


def _is_required(field: Any) -> bool:
    own = getattr(field, "is_required", None)  # Since protobuf 6.31, which then warns of `label`.
    return bool(field.label == field.LABEL_REQUIRED if own is None else own)
