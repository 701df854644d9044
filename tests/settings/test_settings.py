"""Laws of the settings: which value wins, what is refused, and that no password is shown."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields, replace
from rich.pretty import pretty_repr

from tests.settings.loads import Load
from windlass.core.errors import ConfigError
from windlass.core.jobs.spaces import Space
from windlass.core.values.ranges import Bounds
from windlass.settings import Served, Settings, describe_settings, redact_url, usable_cpus
from windlass.settings.rules import RULES


def test_with_nothing_given_every_setting_has_its_default(load: Load) -> None:
    resolved = load()
    assert resolved.settings == Settings()
    assert {found.source for found in resolved.sources.values()} == {"default"}
    assert resolved.warnings == ()


def test_the_defaults_are_those_that_the_requirements_name() -> None:
    settings = Settings()
    # The requirements name the number of CPUs: docs/decisions/0030-default-threads.md.
    assert settings.threads == max(10, usable_cpus())
    # Of claims they name 10: docs/decisions/0036-fast-without-tuning.md.
    assert (settings.claim_size, settings.queue_size) == (1000, 1000)
    assert (settings.concurrency, settings.processes) == (Bounds.of(100), Bounds.of(1))
    assert (settings.max_retries, settings.max_payload) == (3, 262_144)
    assert settings.timeout == timedelta(seconds=300)
    assert settings.lease == settings.shutdown_timeout == timedelta(seconds=30)
    assert settings.retention == timedelta(days=7)
    assert settings.dead_retention is None


def test_flags_win_over_environment_over_dotenv_over_toml_over_default(load: Load) -> None:
    resolved = load(
        {"concurrency": 1},
        env={"WINDLASS_CONCURRENCY": "2", "WINDLASS_LEASE": "20s"},
        dotenv="WINDLASS_CONCURRENCY=3\nWINDLASS_LEASE=30s\nWINDLASS_TIMEOUT=3m\n",
        toml="concurrency = 4\nlease = '40s'\ntimeout = '4m'\nmax_retries = 4\n",
    )
    settings = resolved.settings
    assert (settings.concurrency, settings.lease) == (Bounds.of(1), timedelta(seconds=20))
    assert (settings.timeout, settings.max_retries) == (timedelta(minutes=3), 4)
    assert [
        resolved.sources[name].source
        for name in ("concurrency", "lease", "timeout", "max_retries", "queue_size")
    ] == [
        "--concurrency",
        "WINDLASS_LEASE",
        ".env: WINDLASS_TIMEOUT",
        "windlass.toml: max_retries",
        "default",
    ]


def test_a_windlass_name_wins_over_the_other_names(load: Load) -> None:
    resolved = load(env={"WORKER_CONCURRENCY": "5", "WINDLASS_CONCURRENCY": "6"})
    assert resolved.settings.concurrency == Bounds.of(6)
    assert resolved.sources["concurrency"].source == "WINDLASS_CONCURRENCY"


def test_another_name_in_the_environment_wins_over_a_windlass_name_in_a_file(load: Load) -> None:
    assert load(
        env={"LOG_LEVEL": "error"}, dotenv="WINDLASS_LOG_LEVEL=debug"
    ).settings.log_level == ("error")


@pytest.mark.parametrize(
    ("variable", "raw", "field", "value"),
    [
        ("WORKER_COUNT", "8", "threads", 8),
        ("WORKER_CONCURRENCY", "5", "concurrency", Bounds.of(5)),
        ("WINDLASS_CONCURRENCY", "5..100", "concurrency", Bounds(least=5, most=100)),
        ("WINDLASS_PROCESSES", "1..8", "processes", Bounds(least=1, most=8)),
        ("JOB_BATCH_SIZE", "10", "claim_size", 10),
        ("JOB_POLL_INTERVAL", "1500", "poll_interval", timedelta(seconds=1.5)),
        ("JOB_POLL_INTERVAL", "2s", "poll_interval", timedelta(seconds=2)),
        ("WINDLASS_POLL_INTERVAL", "2", "poll_interval", timedelta(seconds=2)),
        ("WINDLASS_POLL_INTERVAL", "1500ms", "poll_interval", timedelta(seconds=1.5)),
        ("QUEUE_SIZE", "50", "queue_size", 50),
        ("MAX_RETRIES", "7", "max_retries", 7),
        ("JOB_MAX_RETRIES", "7", "max_retries", 7),
        ("SHUTDOWN_TIMEOUT", "45", "shutdown_timeout", timedelta(seconds=45)),
        ("LOG_LEVEL", "WARN", "log_level", "warning"),
        ("WINDLASS_RETENTION", "never", "retention", None),
        ("WINDLASS_DEAD_RETENTION", "30d", "dead_retention", timedelta(days=30)),
        (
            *("WINDLASS_QUEUES", " mail, , reports,mail", "queues"),
            (Served("mail"), Served("reports")),
        ),
        (
            *("WINDLASS_QUEUES", "mail=10, reports , a=b = 3", "queues"),
            (Served("mail", 10), Served("reports"), Served("a=b", 3)),
        ),
        (
            *("WINDLASS_SPACES", "mail=mail|mail-*, bulk = import", "spaces"),
            (Space("mail", ("mail", "mail-*")), Space("bulk", ("import",))),
        ),
        ("WINDLASS_SPACE", "mail", "space", "mail"),
        ("WINDLASS_EXCLUDE", "mail, reports", "exclude", ("mail", "reports")),
        ("WINDLASS_IMPORTS", "shop.jobs", "imports", ("shop.jobs",)),
        ("WINDLASS_LOG_FORMAT", "json", "log_format", "json"),
        ("WINDLASS_TRACES", "on", "traces", "on"),
        ("WINDLASS_URL", "memory://\n", "url", "memory://"),
    ],
)
def test_each_variable_is_read_in_its_own_unit(
    load: Load, variable: str, raw: str, field: str, value: object
) -> None:
    resolved = load(env={variable: raw})
    assert getattr(resolved.settings, field) == value
    assert resolved.sources[field].source == variable
    assert load(dotenv=f"{variable}='{raw}'").settings == resolved.settings


def test_two_other_names_with_different_values_are_refused_and_both_named(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"^MAX_RETRIES = '3' and JOB_MAX_RETRIES = '5' give"):
        load(env={"MAX_RETRIES": "3", "JOB_MAX_RETRIES": "5"})


def test_two_other_names_that_agree_are_accepted(load: Load) -> None:
    assert load(env={"MAX_RETRIES": "5", "JOB_MAX_RETRIES": " 05"}).settings.max_retries == 5


def test_a_windlass_name_settles_a_contradiction_of_the_others(load: Load) -> None:
    env = {"MAX_RETRIES": "3", "JOB_MAX_RETRIES": "5", "WINDLASS_MAX_RETRIES": "1"}
    assert load(env=env).settings.max_retries == 1


@pytest.mark.parametrize("absent", [None, [], ()])
def test_a_flag_that_was_not_given_hides_nothing(load: Load, absent: object) -> None:
    queues = load({"queues": absent}, env={"WINDLASS_QUEUES": "mail"}).settings.queues
    assert queues == (Served("mail"),)


@pytest.mark.parametrize(
    ("given", "queues"),
    [
        ({"mail": 10, "a=1": None}, (Served("mail", 10), Served("a=1"))),
        (["mail=10", "default"], (Served("mail", 10), Served("default"))),
        ("default,mail=10,mail=10", (Served("default"), Served("mail", 10))),
        ({}, ()),
    ],
)
def test_queues_are_given_as_a_table_a_list_or_a_text(
    load: Load, given: object, queues: tuple[Served, ...]
) -> None:
    assert load({"queues": given}).settings.queues == queues


def test_queues_may_be_a_table_of_the_file(load: Load) -> None:
    assert load(toml="[queues]\nmail = 10").settings.queues == (Served("mail", 10),)


@pytest.mark.parametrize(
    "wrong",
    ["mail=0", "mail=-1", "mail=x", "mail=1.5", "=3", "mail=", "mail=1,mail=2", "mail,mail=2"],
)
def test_queues_whose_slots_cannot_be_are_refused(load: Load, wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"WINDLASS_QUEUES must be .*'mail=10,default', got "):
        load(env={"WINDLASS_QUEUES": wrong})


@pytest.mark.parametrize("wrong", [{"mail": 0}, {"mail": True}, {"mail": 1.5}, {1: 2}, {"": 1}])
def test_a_table_of_queues_that_cannot_be_is_refused(load: Load, wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"must be .*, got "):
        load({"queues": wrong})


def test_an_empty_text_as_flag_asks_for_all_queues(load: Load) -> None:
    assert load({"queues": ""}, env={"WINDLASS_QUEUES": "mail"}).settings.queues == ()


def test_a_flag_overrides_even_a_broken_variable(load: Load) -> None:
    assert load(
        {"concurrency": "7"}, env={"WINDLASS_CONCURRENCY": "many"}
    ).settings.concurrency == Bounds.of(7)


@pytest.mark.parametrize("place", ["REDIS_URL", ".env: REDIS_URL"])
def test_redis_is_the_store_where_nothing_else_names_one(load: Load, place: str) -> None:
    """Prevents: a worker serves an empty SQLite file, and nobody notices."""
    if place == "REDIS_URL":
        resolved = load(env={"REDIS_URL": "redis://:hush@h"})
    else:
        resolved = load(dotenv="REDIS_URL=redis://:hush@h")
    assert resolved.settings.url == "redis://:hush@h"
    assert resolved.sources["url"].source == place
    assert "hush" not in resolved.sources["url"].shown


def test_where_the_jobs_are_wins_over_the_variable_of_redis(load: Load) -> None:
    """Prevents: a cache that a platform announces takes the jobs from their database."""
    redis, file = {"REDIS_URL": "redis://h"}, "sqlite:///a.db"
    assert load(env={"REDIS_URL": ""}, dotenv="REDIS_URL=").sources["url"].source == "default"
    for resolved in (
        load(env={**redis, "WINDLASS_URL": file}),
        load({"url": file}, env=redis),
        load(env=redis, dotenv=f"WINDLASS_URL={file}"),
        load(env=redis, toml=f"url = '{file}'"),
    ):
        assert resolved.settings.url == file


@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_variable_is_not_set_whatever_its_setting(load: Load, empty: str) -> None:
    names = [
        name for each in describe_settings() for name in (each.variable, *each.other_names)
    ] + ["WINDLASS_CONFIG", "WINDLASS_TYPO", "REDIS_URL"]
    unset = load()
    assert load(env=dict.fromkeys(names, empty)) == unset
    assert load(dotenv="\n".join(f"{name}={empty}" for name in names)) == unset


def test_an_empty_variable_leaves_the_setting_to_the_next_place(load: Load) -> None:
    env = {"WINDLASS_CONCURRENCY": "", "WORKER_CONCURRENCY": "", "WINDLASS_CONFIG": ""}
    assert load(env=env, dotenv="WINDLASS_CONCURRENCY=7").settings.concurrency == Bounds.of(7)
    assert load(
        env=env, dotenv="WINDLASS_CONCURRENCY=", toml="concurrency = 8"
    ).settings.concurrency == Bounds.of(8)
    both = {"WINDLASS_CONCURRENCY": "", "WORKER_CONCURRENCY": "9"}
    assert load(env=both).settings.concurrency == Bounds.of(9)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///windlass.db", "sqlite:///windlass.db"),
        ("memory://", "memory://"),
        (
            "postgresql://host:5432/db?connect_timeout=3",
            "postgresql://host:5432/db?connect_timeout=3",
        ),
        ("postgresql://ann@host/db", "postgresql://ann@host/db"),
        ("postgresql://ann:S3cret@host:5432/db", "postgresql://ann:***@host:5432/db"),
        ("redis://:S3cret@host/0", "redis://:***@host/0"),
        ("postgresql://ann:S3/c?r@et@host/db", "postgresql://ann:***@host/db"),
        ("postgresql://ann:S3?a=cret@host/db", "postgresql://ann:***@host/db"),
        ("postgresql://h/db?user=ann&password=S3cret", "postgresql://h/db?user=ann&password=***"),
        ("postgresql://h/db?SSLPassword=S3cret&x=1", "postgresql://h/db?SSLPassword=***&x=1"),
        (
            "postgresql://ann:S3cret@h/db?application_name=a@b&sslpassword=S3cret#S3cret",
            "postgresql://ann:***@h/db?application_name=a@b&sslpassword=***",
        ),
    ],
)
def test_passwords_in_urls_are_hidden(url: str, shown: str) -> None:
    assert redact_url(url) == shown


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="&"), min_size=1, max_size=20).map(
        lambda text: f"<{text}>"
    ),
    st.sampled_from(["", "?sslmode=require", "?sslmode=require&target=a@b"]),
)
def test_no_password_whatever_is_in_it_survives_redaction(password: str, query: str) -> None:
    assert password not in redact_url(f"postgresql://ann:{password}@host/db{query}")


def test_a_password_is_shown_neither_by_sources_nor_by_repr_nor_by_errors(load: Load) -> None:
    resolved = load(env={"WINDLASS_URL": "postgresql://ann:S3cret@host/db"})
    assert resolved.settings.url == "postgresql://ann:S3cret@host/db"
    assert resolved.sources["url"].shown == "postgresql://ann:***@host/db"
    assert "S3cret" not in repr(resolved)
    assert "S3cret" not in pretty_repr(resolved)
    with pytest.raises(ConfigError) as caught:
        load(env={"WINDLASS_URL": "ann:S3cret@host"})
    assert str(caught.value).startswith("WINDLASS_URL must be a URL like")
    assert "S3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_values_are_shown_as_people_write_them(load: Load) -> None:
    sources = load(env={"WINDLASS_QUEUES": "a,b=2", "WINDLASS_TIMEOUT": "90"}).sources
    shown = {name: found.shown for name, found in sources.items()}
    assert shown["queues"] == "a,b=2"
    assert (shown["timeout"], shown["dead_retention"], shown["imports"]) == (
        "1m30s",
        "never",
        "none",
    )


def test_every_setting_has_a_rule_and_help() -> None:
    helps = {each.field: each for each in describe_settings()}
    assert list(helps) == [each.name for each in fields(Settings)]
    assert all(each.doc.endswith(".") and each.accepts for each in helps.values())
    assert helps["threads"].default == "10, or the number of CPUs if that is more"
    assert helps["isolated_processes"].default == "the number of CPUs"
    assert helps["queues"].default == "all"
    assert helps["max_retries"].variable == "WINDLASS_MAX_RETRIES"
    assert helps["max_retries"].other_names == ("MAX_RETRIES", "JOB_MAX_RETRIES")


@pytest.mark.parametrize("field", [each.field for each in describe_settings()])
def test_every_default_can_be_written_as_it_is_shown(load: Load, field: str) -> None:
    shown = load().sources[field].shown
    if shown in ("all", "none", "the URL"):
        shown = ""
    resolved = load(env={f"WINDLASS_{field.upper()}": shown})
    assert resolved.settings == Settings()


@pytest.mark.parametrize(
    ("written", "meant"),
    [("true", True), ("On", True), ("1", True), ("no", False), ("off", False), (" 0 ", False)],
)
def test_a_switch_is_read_as_people_write_it(load: Load, written: str, meant: bool) -> None:
    assert load(env={"WINDLASS_ISOLATE": written}).settings.isolate is meant


def test_a_switch_that_is_neither_on_nor_off_is_refused(load: Load) -> None:
    with pytest.raises(ConfigError, match="WINDLASS_ISOLATE must be true or false, got 'maybe'"):
        load(env={"WINDLASS_ISOLATE": "maybe"})


def test_the_port_of_metrics_has_the_name_that_people_know(load: Load) -> None:
    assert load().settings.metrics_port == 19463
    assert load(env={"METRICS_PORT": "9191"}).settings.metrics_port == 9191
    assert (
        load(env={"METRICS_PORT": "9191", "WINDLASS_METRICS_PORT": "0"}).settings.metrics_port == 0
    )


def test_the_token_of_metrics_is_never_shown(load: Load) -> None:
    token = "a-token-that-is-long-enough"
    resolved = load(env={"WINDLASS_METRICS_TOKEN": token})
    assert resolved.settings.metrics_token == token
    assert token not in repr(resolved)
    assert token not in pretty_repr(resolved)
    assert resolved.sources["metrics_token"].shown == "(hidden)"
    with pytest.raises(ConfigError, match="at least 16") as refused:
        load(env={"WINDLASS_METRICS_TOKEN": "hunter2"})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("host", ["nowhere", "1.2.3", "0.0.0.0:9090"])
def test_metrics_are_served_at_an_address_and_nothing_else(load: Load, host: str) -> None:
    with pytest.raises(ConfigError, match="an IP address"):
        load(env={"WINDLASS_METRICS_HOST": host})


def test_every_hidden_setting_is_left_out_where_all_are_shown(load: Load) -> None:
    hidden = {name for name, rule in RULES.items() if rule.hidden} - {"encryption_keys"}
    values = {name: f"S3cret-{name}" for name in (*hidden, "url", "listen_url")}
    shown = repr(replace(load().settings, **values))
    assert "S3cret" not in shown
    assert "lease=" in shown
