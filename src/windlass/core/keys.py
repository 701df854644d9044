"""Owns keys: what the limits and the fairness of a kind go by, found in a job's arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from windlass.core.errors import ConfigError, PayloadInvalid
from windlass.core.names import check_name
from windlass.core.secret import Secret

Key = str | Callable[..., object]
"""The name of an argument, or a function of them: `lambda url, **_: urlsplit(url).hostname`."""


def checked_key(kind: str, key: Key, parameters: Collection[str] | None) -> Key:
    """Return a key as it was given; `parameters` are the handler's, if they are known.

    Raises:
        ConfigError: it is neither a function nor the name of a parameter.
    """
    if callable(key):
        return key
    given: object = key
    if not isinstance(given, str) or not given:
        raise ConfigError(
            f"kind {kind!r}: a key is the name of an argument, or a function of the arguments, and "
            f"{key!r} is neither"
        )
    if parameters is not None and key not in parameters:
        known = ", ".join(sorted(parameters)) or "none"
        raise ConfigError(f"kind {kind!r} has no argument {key!r} to go by; it has: {known}")
    return key


def key_of(kind: str, key: Key, value: Any) -> str:
    """Return the key of a job with this payload; nothing and None have the empty key.

    Raises:
        PayloadInvalid: it cannot be found, or cannot be a key.
    """
    try:
        found = value_by(key, value)
        return "" if found is None or found == "" else check_name("key", str(found))
    except PayloadInvalid:
        raise
    except Exception as error:
        raise PayloadInvalid(
            kind, "", f"its key cannot be told: {type(error).__qualname__}: {error}"
        ) from error


def value_by(key: Key, value: Any) -> object:
    """Return what a key finds in a payload; what the key raises is raised.

    Raises:
        ValueError: it is a secret.
    """
    if callable(key):
        found = key(**value) if isinstance(value, Mapping) else key(value)
    else:
        found = value[key] if isinstance(value, Mapping) else getattr(value, key)
    if isinstance(found, Secret):
        raise ValueError("a Secret is no key: keys are stored, and shown, as is")  # noqa: TRY004
    return found
