"""Files of settings: which are read, and which are refused by their name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.settings.loads import Load
from windlass.core.errors import ConfigError
from windlass.core.values.ranges import Bounds
from windlass.settings import Settings


def test_another_configuration_file_can_be_chosen(load: Load, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("concurrency = 9")
    resolved = load(env={"WINDLASS_CONFIG": "other.toml"}, toml="concurrency = 8")
    assert resolved.settings.concurrency == Bounds.of(9)
    assert resolved.sources["concurrency"].source == "other.toml: concurrency"
    assert resolved.warnings == ()


@pytest.mark.parametrize("chosen", ["missing.toml", "."])
def test_a_chosen_configuration_file_that_cannot_be_read_is_refused(
    load: Load, chosen: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^WINDLASS_CONFIG = '{chosen}' cannot be read"):
        load(env={"WINDLASS_CONFIG": chosen})


@pytest.mark.parametrize("content", [b"concurrency = ", b"\xff\xfe"])
def test_a_broken_toml_file_is_refused_by_its_name(
    load: Load, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "windlass.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"^windlass\.toml cannot be read"):
        load()


def test_a_dotenv_that_is_not_text_is_refused_by_its_name(load: Load, tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"A=\xff")
    with pytest.raises(ConfigError, match=r"\.env cannot be read"):
        load()


def test_a_directory_called_dotenv_is_not_a_file_of_settings(load: Load, tmp_path: Path) -> None:
    (tmp_path / ".env").mkdir()
    assert load().settings == Settings()


def test_loading_leaves_the_environment_alone(load: Load) -> None:
    before = dict(os.environ)
    load(dotenv="WINDLASS_CONCURRENCY=5\nOTHER=1")
    assert dict(os.environ) == before
