"""Owns the codec between a handler's arguments and the JSON payload, built from its type hints.

What is enqueued is encoded, and then decoded once by the very decoder that the worker will use:
what passes here passes there.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from windlass.core.errors import ConfigError, PayloadInvalid, PayloadTooLarge

MAX_PAYLOAD = 256 * 1024
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_PATH = re.compile(r"^(?P<reason>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)


class PayloadCodec:
    """Turns the arguments of one kind into a payload and back, and refuses what does not fit."""

    def __init__(self, kind: str, shape: Any, *, whole: bool = False) -> None:
        """Make a codec for a struct of arguments, or for one value that is the `whole` payload."""
        self._kind = kind
        self._shape = shape
        self._whole = whole
        self._decoder: msgspec.json.Decoder[Any] = _decoder(kind, shape)

    @classmethod
    def for_parameters(cls, kind: str, parameters: Mapping[str, inspect.Parameter]) -> PayloadCodec:
        """Make a codec whose payload is an object with one field for each parameter."""
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for name, parameter in parameters.items():
            hint = Any if parameter.annotation is inspect.Parameter.empty else parameter.annotation
            if parameter.default is inspect.Parameter.empty:
                fields.append((name, hint))
            else:
                fields.append((name, hint, _default(parameter.default)))
        shape = msgspec.defstruct("Payload", fields, kw_only=True, forbid_unknown_fields=True)
        return cls(kind, shape)

    def encode(self, value: Any, *, limit: int = MAX_PAYLOAD) -> bytes:
        """Encode arguments (a dict, or the whole payload), and check that they decode again.

        Raises:
            PayloadInvalid: a field does not fit; the error names it.
            PayloadTooLarge: there are more bytes than the limit allows.
        """
        payload = encode_json(self._kind, value)
        if len(payload) > limit:
            raise PayloadTooLarge(self._kind, len(payload), limit)
        self.decode(payload)
        return payload

    def decode(self, payload: bytes) -> Any:
        """Return the arguments in a payload: a dict of those that are there, or the whole value.

        Raises:
            PayloadInvalid: it is not what the handler takes; the error names the field.
        """
        try:
            value = self._decoder.decode(payload)
        except msgspec.ValidationError as error:
            raise _invalid(self._kind, error) from error
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise PayloadInvalid(self._kind, "", f"not JSON that can be read: {error}") from error
        if self._whole:
            return value
        return {name: getattr(value, name) for name in value.__struct_fields__}


def encode_json(what: str, value: Any) -> bytes:
    """Encode a value as JSON that every store can hold and every decoder reads back.

    Raises:
        PayloadInvalid: it has no such form (an unknown type, NaN, NUL, a lone surrogate, too deep).
    """
    try:
        encoded = msgspec.json.encode(value, enc_hook=_to_json)
    except RecursionError as error:
        raise PayloadInvalid(what, "", "it is nested too deeply, or refers to itself") from error
    except UnicodeEncodeError as error:
        where = _find(value, lambda text: isinstance(text, str) and not _is_utf8(text))
        raise PayloadInvalid(
            what, where or "", "text with a lone surrogate is not Unicode"
        ) from error
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise PayloadInvalid(what, _culprit(value), str(error)) from error
    if b"null" in encoded and (path := _find(value, _is_not_finite)) is not None:
        # msgspec writes NaN and the infinities as null, which would arrive as something else.
        raise PayloadInvalid(what, path, "NaN and infinities have no JSON form")
    if rb"\u0000" in encoded and _NUL.search(encoded):
        path = _find(value, lambda text: isinstance(text, str) and "\x00" in text)
        raise PayloadInvalid(what, path or "", "a NUL character cannot be stored")
    return encoded


def decode_json(encoded: bytes, hint: Any = Any) -> Any:
    """Decode a stored value, as the given type where one is known."""
    return msgspec.json.decode(encoded, type=hint, dec_hook=_from_json)


def _decoder(kind: str, shape: Any) -> msgspec.json.Decoder[Any]:
    try:
        return msgspec.json.Decoder(shape, dec_hook=_from_json)
    except TypeError as error:
        raise ConfigError(f"the payload of {kind!r} cannot be described: {error}") from error


def _default(value: Any) -> Any:
    """Keep msgspec from copying or refusing a mutable default: the handler's own is used anyway."""
    return msgspec.field(default_factory=lambda: value)


def _invalid(kind: str, error: msgspec.ValidationError) -> PayloadInvalid:
    cause = error.__cause__
    if cause is not None and hasattr(cause, "errors"):
        first = cause.errors()[0]
        inner = ".".join(str(part) for part in first["loc"])
        outer = _PATH.match(str(error).rsplit("\n", 1)[-1])
        field = _field(outer["path"] if outer else None)
        return PayloadInvalid(kind, ".".join(filter(None, (field, inner))), first["msg"])
    parts = _PATH.match(str(error))
    if parts is None:
        return PayloadInvalid(kind, "", str(error))
    if parts["path"] is None and (named := re.search(r"field `([^`]*)`", parts["reason"])):
        return PayloadInvalid(kind, named[1], parts["reason"])
    return PayloadInvalid(kind, _field(parts["path"]), parts["reason"])


def _field(path: str | None) -> str:
    return (path or "").removeprefix("$").removeprefix(".")


def _to_json(value: Any) -> Any:
    """Encode what msgspec does not know: pydantic models, without importing pydantic."""
    if hasattr(type(value), "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"a value of type {type(value).__qualname__} has no JSON form")


def _from_json(hint: Any, value: Any) -> Any:
    validate: Callable[[Any], Any] | None = getattr(hint, "model_validate", None)
    if validate is not None:
        return validate(value)
    raise NotImplementedError(f"{hint!r} is not a type that a payload can hold")


def _culprit(value: Any) -> str:
    """Return the name of the first argument that cannot be encoded."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        try:
            msgspec.json.encode(inner, enc_hook=_to_json)
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
            return str(name)
    return ""


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _find(value: Any, wrong: Callable[[Any], bool]) -> str | None:
    """Return the path to the first wrong leaf, or None."""
    for path, leaf in _leaves(msgspec.to_builtins(value, enc_hook=_to_json), ""):
        if wrong(leaf):
            return path
    return None


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            here = f"{path}.{name}" if path else str(name)
            yield here, name
            yield from _leaves(inner, here)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{index}]")
    else:
        yield path, value
