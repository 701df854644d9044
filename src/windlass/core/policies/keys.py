"""Owns keys: the value in a job's arguments by which limits and fairness of a kind apply."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from windlass.core.errors import ConfigError, PayloadInvalid
from windlass.core.payloads.secret import Secret
from windlass.core.values.names import check_name

Key = str | Callable[..., object]
"""The name of an argument, or a function of them: `lambda url, **_: urlsplit(url).hostname`."""


def checked_key(kind: str, key: Key, parameters: Collection[str] | None) -> Key:
    """Validate a key; `parameters` are the handler's, if known."""
    if callable(key):
        return key
    given: object = key
    if not isinstance(given, str) or not given:
        raise ConfigError(
            f"kind {kind!r}: key must be the name of an argument or a function of the arguments, "
            f"got {key!r}"
        )
    if parameters is not None and key not in parameters:
        known = ", ".join(sorted(parameters)) or "none"
        raise ConfigError(f"kind {kind!r} has no argument {key!r}; its arguments are: {known}")
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
            kind, "", f"computing its key failed: {type(error).__qualname__}: {error}"
        ) from error


def value_by(key: Key, value: Any) -> object:
    """Return the value that a key has in a payload; exceptions of the key propagate.

    Raises:
        ValueError: it is a secret.
    """
    if callable(key):
        found = key(**value) if isinstance(value, Mapping) else key(value)
    else:
        found = value[key] if isinstance(value, Mapping) else getattr(value, key)
    if isinstance(found, Secret):
        raise ValueError("a key must not be a Secret; keys are shown in clear text")  # noqa: TRY004
    return found
