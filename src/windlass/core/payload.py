"""Owns the codec between a handler's arguments and the JSON payload, built from its type hints.

What is enqueued is encoded, and then decoded once by the very decoder that the worker will use:
what passes here passes there.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Union

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from windlass.core.errors import ConfigError, PayloadInvalid, PayloadTooLarge
from windlass.core.looks import depth_of, find_leaf, has_leaf, is_not_finite, is_utf8
from windlass.core.secret import Cipher, Sealing, Secret, hidden_type, holds_secrets, is_secret

MAX_PAYLOAD = 256 * 1024
_DEEPEST = 200
"""How deep a payload may be nested: far below where decoders give up, wherever they are called."""
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_PATH = re.compile(r"^(?P<reason>.*?)(?: - at (?:`key` in )?`(?P<path>[^`]*)`)?$", re.DOTALL)
_EMPTY = b"{}"


class PayloadCodec:
    """Turns the arguments of one kind into a payload and back, and refuses what does not fit."""

    def __init__(
        self, kind: str, shape: Any, *, whole: bool = False, cipher: Cipher | None = None
    ) -> None:
        """Make a codec for a struct of arguments, or for one value that is the `whole` payload.

        The `cipher` seals what is secret in it.
        """
        self._kind = kind
        self._shape = shape
        self._whole = whole
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
            raise ConfigError(f"{kind!r} cannot have the parameters {names}: {error}") from error
        return cls(kind, shape, cipher=cipher)

    @property
    def has_secrets(self) -> bool:
        """Whether there can be secrets in the payload."""
        return self._sealing is not None

    def encode(self, value: Any, *, limit: int = MAX_PAYLOAD) -> bytes:
        """Encode arguments (a dict, or the whole payload), and check that they decode again.

        Raises:
            PayloadInvalid: a field does not fit; the error names it.
            PayloadTooLarge: there are more bytes than the limit allows.
            ConfigError: there is a secret, and no key to encrypt it with.
        """
        if not value and value == {} and self._empty is not None:
            return self._empty
        payload = encode_json(self._kind, value, limit=limit, sealing=self._sealing)
        self._decode(payload, self._decoder)
        if payload == _EMPTY:
            self._empty = payload  # What fits once always does.
        return payload

    def decode(self, payload: bytes, *, kind: str | None = None) -> Any:
        """Return what is in a payload: a dict of the arguments that were given, or the whole.

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

    def _decode(self, payload: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
        try:
            return decoder.decode(payload)
        except msgspec.ValidationError as error:
            # Not chained: the cause may quote the payload, which belongs in no log.
            raise _invalid(self._kind, error) from None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise PayloadInvalid(self._kind, "", f"not JSON that can be read: {error}") from None
        except Exception as error:
            # A validator of the user's, which may raise anything.
            raise PayloadInvalid(self._kind, "", f"{type(error).__name__}: {error}") from error


def encode_json(
    what: str, value: Any, *, limit: int | None = None, sealing: Sealing | None = None
) -> bytes:
    """Encode a value as JSON that every store can hold and every decoder reads back.

    Secrets have such a form only if it is said how they are sealed.

    Raises:
        PayloadInvalid: it has no such form (an unknown type, NaN, NUL, a lone surrogate, too deep).
        PayloadTooLarge: it takes more bytes than the limit allows.
    """
    encoder = _encoder
    if sealing is not None:
        encoder = msgspec.json.Encoder(enc_hook=partial(_to_sealed_json, what, sealing))
    try:
        encoded = encoder.encode(value)
        if limit is not None and len(encoded) > limit:
            raise PayloadTooLarge(what, len(encoded), limit)
        _check(what, value, encoded)
    except RecursionError:
        raise PayloadInvalid(what, "", "it is nested too deeply, or refers to itself") from None
    except UnicodeEncodeError:
        where = find_leaf(
            value, lambda leaf: isinstance(leaf, str) and not is_utf8(leaf), _without_secrets
        )
        raise PayloadInvalid(what, where, "a lone surrogate is not Unicode text") from None
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        hook = _to_json if sealing is None else _without_secrets
        raise PayloadInvalid(what, _culprit(value, hook), str(error)) from error
    return encoded


def _check(what: str, value: Any, encoded: bytes) -> None:
    """Refuse what encodes but does not come back as it was. Each look is taken only if needed."""
    if len(encoded) > _DEEPEST and depth_of(encoded, _DEEPEST) > _DEEPEST:
        raise PayloadInvalid(what, "", f"it is nested more than {_DEEPEST} levels deep")
    if b"null" in encoded and has_leaf(value, is_not_finite, _without_secrets):
        # msgspec writes NaN and the infinities as null, which would arrive as something else.
        path = find_leaf(value, is_not_finite, _without_secrets)
        raise PayloadInvalid(what, path, "NaN and infinities have no JSON form")
    if rb"\u0000" in encoded and _NUL.search(encoded):
        path = find_leaf(
            value, lambda leaf: isinstance(leaf, str) and "\x00" in leaf, _without_secrets
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


def _invalid(kind: str, error: msgspec.ValidationError) -> PayloadInvalid:
    cause: Any = error.__cause__
    if hasattr(cause, "error_count"):
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
    """Encode what msgspec does not know: subclasses of plain types, and pydantic models.

    Models are known by their method, so that pydantic is never imported here.
    """
    if hasattr(type(value), "model_dump"):
        return value.model_dump(mode="json")
    for plain, convert in _PLAIN.items():
        if isinstance(value, plain) and type(value) is not plain:
            return convert(value)
    if isinstance(value, Secret):
        raise TypeError("a Secret is stored only where the annotation says so: write Secret[...]")
    raise TypeError(f"a value of type {type(value).__qualname__} has no JSON form")


def _to_sealed_json(what: str, sealing: Sealing, value: Any) -> Any:
    if isinstance(value, Secret):
        return sealing.seal(encode_json(what, value.reveal(), sealing=sealing))
    return _to_json(value)


def _without_secrets(value: Any) -> Any:
    """Encode for a look at the rest; what is in a secret was looked at when it was sealed."""
    return None if isinstance(value, Secret) else _to_json(value)


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
    validate: Callable[[Any], Any] | None = getattr(hint, "model_validate", None)
    if validate is not None:
        return validate(value)
    raise NotImplementedError(f"{hint!r} is not a type that a payload can hold")


def _opened(sealing: Sealing, hint: Any, plain: bytes) -> Secret[Any]:
    try:
        return Secret(decode_json(plain, hint, sealing=sealing))
    except Exception:  # noqa: BLE001 - a validator of the user's may raise anything.
        # Without its cause, which may quote what nobody shall see.
        wanted = getattr(hint, "__name__", None) or str(hint)
        raise ValueError(f"what the secret hides does not fit {wanted}") from None


def _culprit(value: Any, hook: Callable[[Any], Any]) -> str:
    """Return the name of the first argument that cannot be encoded."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        try:
            msgspec.json.encode(inner, enc_hook=hook)
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
            return str(name)
    return ""
