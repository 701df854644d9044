"""Owns the codec between a handler's arguments and the JSON payload, built from its type hints.

Enqueued arguments are encoded, and then decoded once by the very decoder that the worker will use:
a payload that passes here passes there.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from types import FunctionType, MethodType, NoneType
from typing import Any, Union

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from windlass.core.errors import ConfigError, PayloadInvalid, PayloadTooLarge
from windlass.core.payloads import models
from windlass.core.payloads.decode_errors import invalid
from windlass.core.payloads.json_checks import (
    Hook,
    depth_of,
    find_leaf,
    has_leaf,
    is_not_finite,
    is_utf8,
)
from windlass.core.payloads.protobuf.forms import (
    NO_MESSAGES,
    Messages,
    from_json,
    is_message,
    is_message_class,
)
from windlass.core.payloads.protobuf.hints import messages_in
from windlass.core.payloads.protobuf.schema import message_schema
from windlass.core.payloads.secret import (
    Cipher,
    Sealing,
    Secret,
    hidden_type,
    holds_secrets,
    is_secret,
)

MAX_PAYLOAD = 256 * 1024
MAX_RESULT = 1024 * 1024
MAX_HEADERS = 12 * 1024
"""Maximum bytes as JSON; settings may choose another limit for payloads and results.

PostgreSQL accepts headers of 16 KiB: an idempotency key and the context of a trace come on top.
"""
LARGEST = 64 * 1024 * 1024
"""The highest limit that a setting may choose. PostgreSQL enforces it (sql/functions)."""
DEEPEST = 200
"""Maximum nesting of a payload: far below where decoders give up, wherever they are called."""
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_EMPTY = b"{}"


class PayloadCodec:
    """Turns the arguments of one kind into a payload and back, and rejects invalid ones."""

    def __init__(
        self, kind: str, shape: Any, *, whole: bool = False, cipher: Cipher | None = None
    ) -> None:
        """Make a codec for a struct of arguments, or for one value that is the `whole` payload.

        The `cipher` seals its secrets.
        """
        self._kind = kind
        self._shape = shape
        self._whole = whole
        self.messages = messages_in(shape)
        """The protobuf messages that can be in the payload."""
        self._has_defaults = not whole and any(
            field.default is UNSET for field in msgspec.structs.fields(shape)
        )
        self._sealing: Sealing | None = None
        self._decoder: msgspec.json.Decoder[Any] = _decoder(kind, shape, None)
        if cipher is not None and holds_secrets(shape):
            self._sealing = Sealing(cipher, "payload", kind)
            self._decoder = _decoder(kind, shape, self._sealing)
        self._empty: bytes | None = None

    @classmethod
    def for_parameters(
        cls,
        kind: str,
        parameters: Mapping[str, inspect.Parameter],
        *,
        cipher: Cipher | None = None,
    ) -> PayloadCodec:
        """Make a codec whose payload is an object with one field for each parameter."""
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for name, parameter in parameters.items():
            hint = parameter.annotation
            if hint in (inspect.Parameter.empty, object):
                hint = Any
            if parameter.default is inspect.Parameter.empty:
                fields.append((name, hint))
            else:
                # Left unset if it is not given, so that the handler's own default holds.
                fields.append((name, Union[hint, UnsetType], UNSET))  # noqa: UP007 - hints are values.
        try:
            shape = msgspec.defstruct("Payload", fields, kw_only=True, forbid_unknown_fields=True)
        except (RuntimeError, TypeError, ValueError) as error:
            names = ", ".join(parameters)
            raise ConfigError(
                f"the parameters {names} of {kind!r} are not supported: {kind!r}"
            ) from error
        return cls(kind, shape, cipher=cipher)

    @property
    def has_secrets(self) -> bool:
        """Whether there can be secrets in the payload."""
        return self._sealing is not None

    def json_schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of the payload; None if its type has none."""
        own = getattr(self._shape, "model_json_schema", None)
        try:
            found: dict[str, Any] = (
                msgspec.json.schema(self._shape, schema_hook=_schema) if own is None else own()
            )
        except Exception:  # noqa: BLE001 - a type of the user's may raise anything.
            return None
        return found

    def encode(self, value: Any, *, limit: int = MAX_PAYLOAD) -> bytes:
        """Encode arguments (a dict, or the whole payload), and check that they decode again.

        Raises:
            PayloadInvalid: a field does not fit; the error names it.
            PayloadTooLarge: there are more bytes than the limit allows.
            ConfigError: there is a secret, and no key to encrypt it with.
        """
        if not value and value == {} and self._empty is not None:
            return self._empty
        if self.messages is not NO_MESSAGES:
            self._check_messages(value)
        payload = encode_json(
            self._kind, value, limit=limit, sealing=self._sealing, messages=self.messages
        )
        self._decode(payload, self._decoder)
        if payload == _EMPTY:
            self._empty = payload  # A payload that decoded once always does.
        return payload

    def decode(self, payload: bytes, *, kind: str | None = None) -> Any:
        """Return the content of a payload: a dict of the given arguments, or the whole.

        `kind` is the job's, if that may be an alias: its secrets are bound to the name that it has.

        Raises:
            PayloadInvalid: it is not what the handler takes; the error names the field.
        """
        decoder = self._decoder
        if self._sealing is not None and kind not in (None, self._kind):
            decoder = _decoder(kind, self._shape, replace(self._sealing, kind=kind))
        value = self._decode(payload, decoder)
        if self._whole:
            return value
        fields = asdict(value)
        if self._has_defaults:
            return {name: given for name, given in fields.items() if given is not UNSET}
        return fields

    def _check_messages(self, value: Any) -> None:
        """Raise for an argument that is the message of another."""
        hints = {"": self._shape} if self._whole else self._shape.__annotations__
        given_by = {"": value} if self._whole else value
        for name, given in given_by.items() if isinstance(given_by, dict) else ():
            if name in hints and is_message(given):
                try:
                    messages_in(hints[name]).check(given)
                except TypeError as error:
                    raise PayloadInvalid(self._kind, name, str(error)) from None

    def _decode(self, payload: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
        try:
            return decoder.decode(payload)
        except msgspec.ValidationError as error:
            # Not chained: the cause may quote the payload, which belongs in no log.
            raise invalid(self._kind, error) from None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise PayloadInvalid(self._kind, "", f"not valid JSON: {error}") from None
        except Exception as error:
            # A validator of the user's, which may raise anything.
            raise PayloadInvalid(self._kind, "", f"{type(error).__name__}: {error}") from error


def encode_json(
    what: str,
    value: Any,
    *,
    limit: int | None = None,
    sealing: Sealing | None = None,
    messages: Messages = NO_MESSAGES,
) -> bytes:
    """Encode a value as JSON that every store can hold and every decoder reads back.

    Secrets have such a form only if it is said how they are sealed. `messages` are the protobuf
    messages that are expected in it, and how they are stored.

    Raises:
        PayloadInvalid: it has no such form (an unknown type, NaN, NUL, a lone surrogate, too deep).
        PayloadTooLarge: it takes more bytes than the limit allows.
    """
    if limit is not None and isinstance(value, str | bytes) and len(value) > limit:
        raise PayloadTooLarge(what, len(value), limit)  # Not encoded: that may take all memory.
    encoder, without_secrets = _encoder, _without_secrets
    if sealing is not None or messages is not NO_MESSAGES:
        hook = partial(_to_json, messages=messages, what=what, sealing=sealing)
        encoder = msgspec.json.Encoder(enc_hook=hook)
        without_secrets = partial(_without_secrets, messages=messages)
    try:
        encoded = encoder.encode(value)
        if limit is not None and len(encoded) > limit:
            raise PayloadTooLarge(what, len(encoded), limit)
        _check(what, value, encoded, without_secrets)
    except RecursionError:
        raise PayloadInvalid(what, "", "it is nested too deeply, or refers to itself") from None
    except UnicodeEncodeError:
        where = find_leaf(
            value, lambda leaf: isinstance(leaf, str) and not is_utf8(leaf), without_secrets
        )
        raise PayloadInvalid(what, where, "a lone surrogate is not Unicode text") from None
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        search = partial(_to_json, messages=messages) if sealing is None else without_secrets
        raise PayloadInvalid(what, _culprit(value, search), str(error)) from error
    return encoded


def _check(what: str, value: Any, encoded: bytes, without_secrets: Hook) -> None:
    """Raise for values that encode but would not decode to an equal value."""
    if len(encoded) > DEEPEST and depth_of(encoded, DEEPEST) > DEEPEST:
        raise PayloadInvalid(what, "", f"it is nested more than {DEEPEST} levels deep")
    if b"null" in encoded and has_leaf(value, is_not_finite, without_secrets):
        # msgspec writes NaN and the infinities as null, which would arrive as something else.
        path = find_leaf(value, is_not_finite, without_secrets)
        raise PayloadInvalid(what, path, "NaN and infinities have no JSON form")
    if rb"\u0000" in encoded and _NUL.search(encoded):
        path = find_leaf(
            value, lambda leaf: isinstance(leaf, str) and "\x00" in leaf, without_secrets
        )
        raise PayloadInvalid(what, path, "a NUL character cannot be stored")


def decode_json(encoded: bytes, hint: Any = Any, *, sealing: Sealing | None = None) -> Any:
    """Decode a stored value, as the given type where one is known."""
    return msgspec.json.decode(encoded, type=hint, dec_hook=partial(_from_json, sealing))


def _decoder(kind: str | None, shape: Any, sealing: Sealing | None) -> msgspec.json.Decoder[Any]:
    try:
        return msgspec.json.Decoder(shape, dec_hook=partial(_from_json, sealing))
    except TypeError as error:
        raise ConfigError(f"the payload of {kind!r} cannot be described: {error}") from error


def _schema(hint: Any) -> dict[str, Any]:
    """Return the schema of a type that msgspec does not know: a message, a model; else a value."""
    if is_message_class(hint):
        return message_schema(hint)
    own = getattr(hint, "model_json_schema", None)
    # Not empty: msgspec takes an empty schema for none.
    return {"title": getattr(hint, "__name__", "value")} if own is None else own()


def _to_json(
    value: Any,
    *,
    messages: Messages = NO_MESSAGES,
    what: str = "",
    sealing: Sealing | None = None,
) -> Any:
    if sealing is not None and isinstance(value, Secret):
        inner = encode_json(what, value.reveal(), sealing=sealing, messages=messages)
        return sealing.seal(inner)
    if is_message(value):
        return messages.to_json(value)
    if models.is_model(value):
        return models.to_json(value)
    for plain, convert in _PLAIN.items():
        if isinstance(value, plain) and type(value) is not plain:
            return convert(value)
    if isinstance(value, Secret):
        raise TypeError("a Secret needs the annotation Secret[...]")
    raise TypeError(no_form(value))


def no_form(value: object) -> str:
    """Return the message that a value has no JSON form, with an alternative where one is obvious.

    By its type alone: the repr of a value may contain anything.
    """
    kind = type(value)
    for types, said in _MEANT.items():
        if issubclass(kind, types):
            name = getattr(value, "__qualname__", "it") if "class" in said else kind.__qualname__
            return said.format(name)
    if issubclass(kind, _ENCODED_AS_VALUES) or is_dataclass(kind):
        # msgspec encodes these itself, so it asks for another form of them only as keys.
        return f"a key of type {kind.__qualname__} has no JSON form; use text as the key"
    return f"a value of type {kind.__qualname__} has no JSON form"


_MEANT: Mapping[type[Any] | tuple[type[Any], ...], str] = {
    type: "the class {0} has no JSON form; give an instance, {0}(...)",
    BaseException: "the exception {} has no JSON form; raise it instead",
    Awaitable: "a {} has no JSON form; await it first",
    Iterator: "a {} has no JSON form; make a list of it",
    (FunctionType, MethodType): "a {} has no JSON form; call it first",
}

_ENCODED_AS_VALUES = (NoneType, tuple, frozenset, msgspec.Struct)


def _without_secrets(value: Any, *, messages: Messages = NO_MESSAGES) -> Any:
    # The content of a secret was checked when it was sealed.
    return None if isinstance(value, Secret) else _to_json(value, messages=messages)


_encoder = msgspec.json.Encoder(enc_hook=_to_json)


_PLAIN: dict[type[Any], Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    dict: dict,
    list: list,
    tuple: tuple,
}


def _from_json(sealing: Sealing | None, hint: Any, value: Any) -> Any:
    if hint is object:
        return value
    if sealing is not None and is_secret(hint):
        return _opened(sealing, hidden_type(hint), sealing.open(value))
    if is_message_class(hint):
        return from_json(hint, value)
    if models.is_model_class(hint):
        return models.from_json(hint, value)
    raise NotImplementedError(f"a payload cannot hold the type {hint!r}")


def _opened(sealing: Sealing, hint: Any, plain: bytes) -> Secret[Any]:
    try:
        return Secret(decode_json(plain, hint, sealing=sealing))
    except Exception:  # noqa: BLE001 - a validator of the user's may raise anything.
        # Without its cause, which may quote a secret.
        wanted = getattr(hint, "__name__", None) or str(hint)
        raise ValueError(f"the value of the secret is not a valid {wanted}") from None


def _culprit(value: Any, hook: Callable[[Any], Any]) -> str:
    for name, inner in value.items() if isinstance(value, dict) else ():
        try:
            msgspec.json.encode(inner, enc_hook=hook)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
            return str(name)
    return ""
