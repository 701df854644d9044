"""A wrong or unknown setting is refused by its name, with what would be right."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest

from tests.settings.loads import Load
from windlass.core.errors import ConfigError
from windlass.settings import Served, Settings

TIME = "a duration like '30s' (a plain number is in "
WHOLE = "a whole number"
BOUNDS = "a whole number like 8, or a range like 5..100"
POLL_BOUNDS = "at least 10ms, at most 5m"


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            {"WORKER_CONCURRENCY": "0"},
            f"WORKER_CONCURRENCY must be {BOUNDS}, at least 1, at most 100000, got '0'",
        ),
        (
            {"WINDLASS_PROCESSES": "8..2"},
            f"WINDLASS_PROCESSES must be {BOUNDS}, at least 1, at most 1000, got '8..2'",
        ),
        (
            {"WINDLASS_CLAIM_SIZE": "0"},
            f"WINDLASS_CLAIM_SIZE must be {WHOLE}, at least 1, at most 10000, got '0'",
        ),
        (
            {"WINDLASS_LEASE": "500ms"},
            f"WINDLASS_LEASE must be {TIME}seconds), at least 1s, at most 1h, got '500ms'",
        ),
        (
            {"JOB_POLL_INTERVAL": "soon"},
            f"JOB_POLL_INTERVAL must be {TIME}milliseconds), {POLL_BOUNDS}, got 'soon'",
        ),
        (
            {"LOG_LEVEL": "loud"},
            "LOG_LEVEL must be one of debug, info, warning, error, critical, got 'loud'",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_and_what_would_be_right(
    load: Load, env: Mapping[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(env=env)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "env",
    [
        {"WINDLASS_CONCURRENCY": "1.5"},
        {"WINDLASS_CONCURRENCY": "0..5"},
        {"WINDLASS_CONCURRENCY": "5..100001"},
        {"WINDLASS_CONCURRENCY": "5.."},
        {"WINDLASS_CONCURRENCY": "٣"},
        {"WINDLASS_CONCURRENCY": "9" * 5000},
        {"WINDLASS_MAX_RETRIES": "-1"},
        {"WINDLASS_LEASE": "inf"},
        {"WINDLASS_LEASE": "nan"},
        {"WINDLASS_LEASE": "-5"},
        {"WINDLASS_TIMEOUT": "0"},
        {"WINDLASS_TIMEOUT": "never"},
        {"WINDLASS_TIMEOUT": "1e400"},
        {"WINDLASS_RETENTION": "9" * 400},
        {"WINDLASS_POLL_INTERVAL": "1000"},
    ],
    ids=str,
)
def test_nonsense_is_refused_and_never_replaced_by_a_default(
    load: Load, env: Mapping[str, str]
) -> None:
    (variable,) = env
    with pytest.raises(ConfigError, match=rf"^{variable} must be .*, got "):
        load(env=env)


@pytest.mark.parametrize(
    "line",
    [
        "concurrency = true",
        "concurrency = 1.5",
        "lease = [1]",
        "queues = [1]",
        "url = 5",
        "lease = nan",
    ],
)
def test_a_toml_value_of_the_wrong_type_is_refused_by_file_and_key(load: Load, line: str) -> None:
    key = line.split(" ")[0]
    with pytest.raises(ConfigError, match=rf"^windlass\.toml: {key} must be .*, got "):
        load(toml=line)


def test_toml_takes_numbers_strings_and_lists(load: Load) -> None:
    settings = load(
        toml="poll_interval = 0.5\nlease = 20\ntimeout = '1h'\nqueues = ['a', 'b']\nimports = 'c'"
    ).settings
    assert settings.poll_interval == timedelta(seconds=0.5)
    assert (settings.lease, settings.timeout) == (timedelta(seconds=20), timedelta(hours=1))
    assert (settings.queues, settings.imports) == ((Served("a"), Served("b")), ("c",))


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("concurency", "concurrency"),
        ("poll-interval", "poll_interval"),
        ("LEASE", "lease"),
        ("worker_concurrency", "concurrency"),
    ],
)
def test_an_unknown_toml_key_is_refused_with_what_was_meant(
    load: Load, key: str, meant: str
) -> None:
    with pytest.raises(
        ConfigError, match=rf"'{key}' is not a key of windlass.toml; did you mean '{meant}'"
    ):
        load(toml=f"{key} = 1")


def test_an_unknown_toml_key_like_no_other_is_refused_with_all_there_are(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"'zzz' is not a key of windlass.toml; there are: url, "):
        load(toml="[zzz]\nx = 1")


def test_an_unknown_windlass_variable_is_a_warning_with_what_was_meant(load: Load) -> None:
    resolved = load(
        env={"WINDLASS_LEAS": "5", "WINDLASS_MOON": "1", "SLOTS": "2"},
        dotenv="WINDLASS_LEASES=5",
    )
    assert resolved.settings == Settings()
    assert resolved.warnings == (
        "WINDLASS_LEAS is set, but there is no such setting; did you mean WINDLASS_LEASE?",
        "WINDLASS_MOON is set, but there is no such setting",
        ".env: WINDLASS_LEASES is set, but there is no such setting; did you mean WINDLASS_LEASE?",
    )


def test_an_unknown_flag_is_refused(load: Load) -> None:
    with pytest.raises(
        ConfigError, match=r"'concurency' is not an option of a worker; did you mean 'concurrency'"
    ):
        load({"concurency": 5})
