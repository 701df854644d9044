"""Owns protobuf messages in payloads: their two forms in JSON, and how each is written and read.

A message is written by the JSON mapping of protobuf, with its fields' own names and its enums as
numbers, or as bytes. Either form is read wherever a message is expected.

Message classes are known by what they have, and the mapping is that of the library which made them:
nothing is imported here before there is a message.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from importlib import import_module
from typing import Any, TypeGuard

from msgspec import Struct, field

from windlass.core.errors import ConfigError
from windlass.core.payloads.protobuf.fields import (
    MessageInvalid,
    check_fields,
    has_own_form,
    invalid_by,
    not_imported,
)
from windlass.core.payloads.protobuf.schema import message_schema

MARK = "$protobuf"
"""The field of a message's binary form that has the name of its type; `data` has its bytes."""
_DATA = "data"
_SIZE = "size"
_UNKNOWN = "$unknown_bytes"
_MAX_DEPTH = 200
"""Levels of JSON in which messages are looked for."""
_LARGEST_FLOAT_AS_WRITTEN = 3.4028235e38
"""What protobuf writes for the largest value of a `float`, 3.40282347e38, and refuses to read."""


class Protobuf(Struct, frozen=True, kw_only=True):
    """How a protobuf message is stored: as JSON, or as bytes, which are smaller and quicker.

    Example:
        `def send(email: Annotated[SendEmail, Protobuf(binary=True)]) -> None: ...`
    """

    binary: bool = False

    def __get_pydantic_core_schema__(self, cls: type[Any], _: object) -> Any:
        """Tell pydantic, which calls this, how a message in a model is read and written."""
        schemas = import_module("pydantic_core").core_schema
        return schemas.no_info_before_validator_function(
            partial(_read_field, cls),
            schemas.is_instance_schema(cls),
            serialization=schemas.plain_serializer_function_ser_schema(
                partial(_to_json, binary=self.binary), when_used="json"
            ),
        )

    def __get_pydantic_json_schema__(self, core: Any, _: object) -> dict[str, Any]:
        """Tell pydantic, which calls this, the JSON schema of a message in a model."""
        return message_schema(core["schema"]["cls"])


def _read_field(cls: type[Any], value: Any) -> Any:
    return value if is_message(value) else from_json(cls, value)


class Messages(Struct, frozen=True):
    """The message classes that a payload or a result may have, by the names of their types."""

    classes: Mapping[str, type[Any]] = field(default_factory=dict)
    binary: frozenset[str] = frozenset()
    """The types that are stored as bytes."""

    def to_json(self, message: Any) -> Any:
        """Return the form in which a message is stored.

        Raises:
            TypeError: another message is expected.
            ValueError: it has no such form.
        """
        self.check(message)
        try:
            return _to_json(message, binary=message.DESCRIPTOR.full_name in self.binary)
        except (ConfigError, TypeError, ValueError):
            raise
        except Exception as error:  # noqa: BLE001 - the library raises what it likes.
            raise ValueError(str(error)) from None

    def check(self, message: Any) -> None:
        """Raise TypeError for a message of a type that is not among these, if there are any."""
        name = message.DESCRIPTOR.full_name
        if self.classes and name not in self.classes:
            # The reader ignores fields that it does not know, and so would not report it.
            raise TypeError(f"it must be a {' or a '.join(sorted(self.classes))}, got a {name}")

    def decoded(self, value: Any, *, whole: bool = False) -> Any:
        """Return a JSON value with the messages readable that are stored as bytes.

        Those whose class is not known here stay as they are, and, if the `whole` message has to
        be there, those with fields that their class does not know.
        """
        return self._decoded(value, whole, 0)

    def _decoded(self, value: Any, whole: bool, depth: int) -> Any:
        if depth > _MAX_DEPTH or not self.classes:
            return value
        if isinstance(value, list):
            return [self._decoded(each, whole, depth + 1) for each in value]
        if not isinstance(value, dict):
            return value
        if not is_binary_form(value):
            return {name: self._decoded(each, whole, depth + 1) for name, each in value.items()}
        cls = self.classes.get(value[MARK])
        try:
            return value if cls is None else _readable(value, from_json(cls, value), whole=whole)
        except Exception:  # noqa: BLE001 - the library raises what it likes.
            return value


NO_MESSAGES = Messages()


def is_message_class(hint: Any) -> bool:
    """Return whether a type is a class of messages, or the base of all of them."""
    return (
        isinstance(hint, type)
        and hasattr(hint, "DESCRIPTOR")
        and hasattr(hint, "SerializeToString")
    )


def is_message(value: Any) -> bool:
    return is_message_class(type(value))


def is_binary_form(value: Any) -> TypeGuard[dict[str, Any]]:
    return (
        isinstance(value, dict)
        and value.keys() == {MARK, _DATA}
        and isinstance(value[MARK], str)
        and isinstance(value[_DATA], str)
    )


def without_bytes(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is shown of a binary form: its bytes may hold what is masked elsewhere."""
    data = form[_DATA]
    return {MARK: form[MARK], _SIZE: len(data) * 3 // 4 - data.count("=")}


def from_json(cls: type[Any], value: Any) -> Any:
    """Return the message that is stored in one of the two forms.

    Raises:
        MessageInvalid: it is not a message of this class.
    """
    message = _from_bytes(cls, value) if is_binary_form(value) else _from_mapping(cls, value)
    if not message.IsInitialized():
        raise MessageInvalid("", _missing(message))
    return message


def parts_of(message: Any) -> Iterator[Any]:
    """Yield the values of all fields that are set, those of lists and maps one by one.

    Keys of maps are names, not values: like those of a dict, they are not looked at.
    """
    for _, value in message.ListFields():
        if isinstance(value, Mapping):
            yield from value.values()
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            yield from value
        else:
            yield value


def json_format(cls: type[Any]) -> Any:
    """Return the module of protobuf that reads and writes JSON.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module("google.protobuf.json_format")
    except ImportError as error:
        raise ConfigError(
            f"{cls.__qualname__} is a protobuf message, and protobuf cannot be imported ({error}); "
            "pip install 'windlass[protobuf]'"
        ) from error


def _to_json(message: Any, *, binary: bool) -> Any:
    if not message.IsInitialized():
        raise ValueError(_missing(message))
    if binary or _has_unknown_fields(message):
        return _binary_form(message)  # JSON would lose what this class does not know.
    value = _mapping(message)
    if is_binary_form(value):
        return _binary_form(message)  # A Struct whose content looks like it.
    if _holds_rounded_float(value):
        return _binary_form(message)  # The library writes the largest float as one it refuses.
    if _may_hold_any(message.DESCRIPTOR):
        again = _from_mapping(type(message), value)
        if _bytes(again) != _bytes(message):
            return _binary_form(message)  # The message in an Any has unknown fields.
    return value


def _mapping(message: Any) -> Any:
    try:
        return json_format(type(message)).MessageToDict(
            message,
            preserving_proto_field_name=True,
            use_integers_for_enums=True,
            descriptor_pool=message.DESCRIPTOR.file.pool,
        )
    except TypeError as error:
        name = not_imported(error)
        if name is None:
            raise
        raise ValueError(
            f"an Any holds a {name}, whose class is not imported here; import it, or write "
            "Annotated[..., Protobuf(binary=True)]"
        ) from None


def _from_mapping(cls: type[Any], value: Any) -> Any:
    check_fields(cls.DESCRIPTOR, value)
    message = cls()
    try:
        json_format(cls).ParseDict(
            value,
            message,
            ignore_unknown_fields=True,
            descriptor_pool=cls.DESCRIPTOR.file.pool,
        )
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - the library raises what it likes.
        # Not chained: it quotes the payload.
        raise invalid_by(cls.DESCRIPTOR, error) from None
    return message


def _holds_rounded_float(value: Any) -> bool:
    if isinstance(value, float):
        return abs(value) == _LARGEST_FLOAT_AS_WRITTEN
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_holds_rounded_float, parts))


def _binary_form(message: Any) -> dict[str, str]:
    return {MARK: message.DESCRIPTOR.full_name, _DATA: b64encode(_bytes(message)).decode()}


def _bytes(message: Any) -> bytes:
    serialized: bytes = message.SerializeToString(deterministic=True)
    return serialized


def _from_bytes(cls: type[Any], form: Mapping[str, str]) -> Any:
    name = cls.DESCRIPTOR.full_name
    if form[MARK] != name:
        raise MessageInvalid("", f"a {name} is expected, got a {form[MARK][:200]}")
    try:
        data = b64decode(form[_DATA], validate=True)
    except (binascii.Error, ValueError):
        raise MessageInvalid("", f"the bytes of the {name} are not base64") from None
    message = cls()
    try:
        message.ParseFromString(data)
    except Exception:  # noqa: BLE001 - the library raises what it likes.
        raise MessageInvalid("", f"the bytes are not a valid {name}") from None
    return message


def _readable(form: Mapping[str, str], message: Any, *, whole: bool) -> Any:
    unknown = message.ByteSize() - _known(message).ByteSize()
    if unknown and whole:
        return form
    value = _mapping(message)
    return {**value, _UNKNOWN: unknown} if unknown and isinstance(value, dict) else value


def _has_unknown_fields(message: Any) -> bool:
    return bool(message.ByteSize() != _known(message).ByteSize())


def _known(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return copy


@lru_cache(maxsize=1_000)
def _may_hold_any(descriptor: Any) -> bool:
    """Return whether a message of this type may hold one of any type, with unknown fields in it."""
    waiting, seen = [descriptor], set[str]()
    while waiting:
        each = waiting.pop()
        if each.full_name == "google.protobuf.Any":
            return True
        if each.full_name not in seen and not has_own_form(each):
            seen.add(each.full_name)
            waiting.extend(inner for field in each.fields if (inner := field.message_type))
    return False


def _missing(message: Any) -> str:
    return f"required fields are missing: {', '.join(message.FindInitializationErrors())}"
