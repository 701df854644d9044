"""Owns what an error of the decoder means: which field of a payload does not fit, and why."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from windlass.core.errors import PayloadInvalid
from windlass.core.payloads.protobuf.fields import MessageInvalid


def invalid(kind: str, error: msgspec.ValidationError) -> PayloadInvalid:
    """Return the error of a payload that a decoder refused; models and messages name the field."""
    cause: Any = error.__cause__
    _, outer = _reason_and_path(str(error).rsplit("\n", 1)[-1])
    if isinstance(cause, MessageInvalid):
        return PayloadInvalid(kind, _joined(_field(outer), cause.path), cause.reason)
    if hasattr(cause, "error_count"):
        first = cause.errors()[0]
        inner = _joined(_field(outer), ".".join(str(part) for part in first["loc"]))
        message = first.get("ctx", {}).get("error")
        if isinstance(message, MessageInvalid):
            return PayloadInvalid(kind, _joined(inner, message.path), message.reason)
        return PayloadInvalid(kind, inner, first["msg"])
    reason, path = _reason_and_path(str(error))
    if not path and (named := re.search(r"field `([^`]*)`", reason)):
        return PayloadInvalid(kind, named[1], reason)
    return PayloadInvalid(kind, _field(path), reason)


def _reason_and_path(message: str) -> tuple[str, str]:
    """Split a message of msgspec, such as "Expected `int`, got `str` - at `$.to`"."""
    reason, given, where = message.rpartition(" - at ")
    path = where.removeprefix("`key` in ")
    is_path = given and len(path) > 1 and path[0] == path[-1] == "`" and path.count("`") == 2
    return (reason, path[1:-1]) if is_path else (message, "")


def _field(path: str) -> str:
    return path.removeprefix("$").removeprefix(".")


def _joined(outer: str, inner: str) -> str:
    return ".".join(filter(None, (outer, inner)))
