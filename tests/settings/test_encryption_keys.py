"""Keys are read as `windlass keys new` prints them, and only their ids are ever shown."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from pathlib import Path

import pytest
from rich.pretty import pretty_repr

from windlass import ConfigError
from windlass.settings import EncryptionKey, Resolved, load_settings

FIRST, SECOND = bytes(range(32)), b"\xff" * 32
ONE, TWO = b64encode(FIRST).decode(), urlsafe_b64encode(SECOND).decode()


def load(tmp_path: Path, text: str) -> Resolved:
    return load_settings(environ={"WINDLASS_ENCRYPTION_KEYS": text}, directory=tmp_path)


def test_keys_are_read_in_their_order_named_or_not(tmp_path: Path) -> None:
    keys = load(tmp_path, f" k2:{TWO} , {ONE}\n").settings.encryption_keys
    assert [each.key for each in keys] == [SECOND, FIRST]
    assert keys[0].id == "k2"
    assert keys[1] == EncryptionKey.of(FIRST)


def test_a_key_is_never_shown(tmp_path: Path) -> None:
    resolved = load(tmp_path, f"k2:{TWO},{ONE}")
    shown = f"{resolved!r} {pretty_repr(resolved)} {resolved.sources['encryption_keys'].shown}"
    assert "k2" in shown
    for secret in (ONE, TWO, repr(FIRST), repr(SECOND)):
        assert secret not in shown


@pytest.mark.parametrize(
    "text", ["nonsense", ONE[:-8], f"k 2:{ONE}", f":{ONE}", f"a:{ONE},a:{TWO}", "k2:"]
)
def test_an_invalid_key_is_refused_without_being_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"WINDLASS_ENCRYPTION_KEYS must be .*, got a value that is not"
    ):
        load(tmp_path, text)


def test_a_pattern_that_is_none_is_refused_as_a_setting(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"WINDLASS_REDACT must be comma-separated names of .*, got '\('"
    ):
        load_settings(environ={"WINDLASS_REDACT": "("}, directory=tmp_path)
