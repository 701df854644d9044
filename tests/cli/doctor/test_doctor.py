"""`windlass migrate` and `windlass doctor`: what is there, what is wrong, and how to mend it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from windlass.app.doctor import advice
from windlass.app.doctor import fleet_checks as checkup
from windlass.core.changes import Changes
from windlass.core.errors import ConfigError
from windlass.core.workers import WorkerPulse
from windlass.store.memory import MemoryStore
from windlass.store.sqlite import SqliteStore
from windlass.store.sqlite.file import MIGRATIONS, SCHEMA
from windlass.version import __version__

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


def problems(shell: Shell, *args: object) -> list[dict[str, str]]:
    said = shell("doctor", *args, "--json")
    report: dict[str, Any] = said.json
    assert report["ok"] is (not report["problems"]) is (said.code == 0)
    findings = report["problems"] + report["warnings"] + report["notes"]
    assert all(each["problem"] and each["remedy"] for each in findings)
    found: list[dict[str, str]] = report["problems"]
    return found


def test_migrate_makes_the_store_once(shell: Shell) -> None:
    applied = "".join(f"applied {step.number:04}_{step.name}\n" for step in MIGRATIONS)
    assert shell.ok("migrate").out == f"{applied}{shell.file} is up to date\n"
    assert shell.ok("migrate").out == f"{shell.file} is up to date\n"
    assert shell.ok("migrate", "--json").json == {"store": str(shell.file), "applied": []}
    assert shell.file.stat().st_mode & 0o777 == 0o600


def test_memory_has_nothing_to_migrate(shell: Shell) -> None:
    assert "nothing to migrate" in shell.ok("migrate", "--url", "memory://").out


def test_a_missing_directory_is_reported(shell: Shell) -> None:
    shell("migrate", "--url", "sqlite:///missing/jobs.db").refused("does not exist; create it")
    (found,) = problems(shell, "--url", "sqlite:///missing/jobs.db")
    assert f"mkdir -p {shell.directory / 'missing'}" in found["remedy"]


def test_where_all_is_well_the_exit_code_is_0(shop: Shell) -> None:
    said = shop.ok("doctor", "shop:app")
    assert "all is well" in said.out
    assert str(shop.file) in said.out
    assert problems(shop, "shop:app") == []


def test_doctor_tells_the_absolute_path_that_a_relative_one_became(shop: Shell) -> None:
    facts = shop.ok("doctor", "--url", "sqlite:///windlass.db", "--json").json["facts"]
    assert facts["store"] == str(shop.file)
    assert facts["schema"].startswith(f"{SCHEMA} ")
    assert facts["workers"] == "0 alive"


def test_each_setting_is_shown_with_its_value_and_its_source(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKER_CONCURRENCY", "5")
    shell.write(".env", "WINDLASS_LEASE=20s\n")
    shell.write("windlass.toml", "max_retries = 9\n")
    shell.write("shop.py", "from windlass import Windlass\napp = Windlass('sqlite:///own.db')\n")
    settings = shell("doctor", "shop:app", "--json").json["settings"]
    assert settings["concurrency"] == {"value": "5", "source": "WORKER_CONCURRENCY"}
    assert settings["lease"] == {"value": "20s", "source": ".env: WINDLASS_LEASE"}
    assert settings["max_retries"] == {"value": "9", "source": "windlass.toml: max_retries"}
    assert settings["url"] == {"value": "sqlite:///own.db", "source": "Windlass(url=...)"}
    assert settings["timeout"]["source"] == "default"
    settings = shell("doctor", "shop:app", "--url", "memory://", "--json").json["settings"]
    assert settings["url"] == {"value": "memory://", "source": "--url"}


def test_doctor_shows_no_password(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_URL", "postgresql://ann:S3cret@host/db")
    for args in ((), ("--json",)):
        said = shell("doctor", *args)
        assert said.code == 1
        assert "S3cret" not in said.out + said.err


def test_to_examine_is_not_to_create(shell: Shell) -> None:
    said = shell.ok("doctor", "--json")
    assert f"there is no store at {shell.file} yet" in said.json["notes"][0]["problem"]
    assert not shell.file.exists()


def test_to_examine_is_not_to_migrate(shell: Shell) -> None:
    sqlite3.connect(shell.file).close()
    shell.file.touch(0o600)
    (found,) = problems(shell)
    assert found["remedy"] == "windlass migrate"
    assert shell.file.stat().st_size == 0


def test_a_schema_of_a_newer_release_is_reported(shop: Shell) -> None:
    db = sqlite3.connect(shop.file)
    db.execute("PRAGMA user_version = 99")
    db.close()
    (found,) = problems(shop)
    assert "newer release" in found["problem"]


def test_a_file_that_other_users_can_read_is_reported_with_its_remedy(shop: Shell) -> None:
    shop.file.chmod(0o644)
    (found,) = problems(shop)
    assert found["remedy"] == f"chmod 600 {shop.file}"


def test_a_file_that_is_not_a_database_is_reported(shell: Shell) -> None:
    shell.write("windlass.db", "not a database, whatever its name says" * 10)
    (found,) = problems(shell)
    assert "is not an SQLite database" in found["problem"]


def test_variables_without_effect_are_reported(
    shop: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_CONCURENCY", "5")
    monkeypatch.setenv("WINDLASS_APP", "shop:app")
    (found,) = problems(shop)
    assert "did you mean WINDLASS_CONCURRENCY?" in found["problem"]


def test_a_redis_that_is_away_is_a_problem_with_the_source_of_its_url(
    shop: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:hush@127.0.0.1:1")
    (found,) = problems(shop)
    assert "redis://127.0.0.1:1" in found["problem"]
    assert "REDIS_URL" in found["remedy"]
    assert "hush" not in str(found)


def test_waiting_jobs_without_a_worker_are_a_problem(shell: Shell) -> None:
    shell.enqueue()
    (found,) = problems(shell)
    assert "no worker is alive" in found["problem"]
    assert found["remedy"].startswith("windlass worker ")


def test_jobs_that_no_live_worker_serves_are_a_problem(shell: Shell) -> None:
    shell.start("send_email")
    shell.enqueue("send_email")
    assert problems(shell) == []
    shell.enqueue("unknown", queue="slow")
    (found,) = problems(shell)
    assert "kind unknown are pending in queue slow" in found["problem"]


def test_a_worker_that_drains_serves_nothing(shell: Shell) -> None:
    """`why`, `stats` and the metrics say so, too: doctor must not find that all is well."""
    shell.enqueue("send_email")
    shell.register("w1")
    shell.beat("w1", WorkerPulse())
    assert problems(shell) == []
    shell.beat("w1", WorkerPulse(state="draining"))
    (found,) = problems(shell)
    assert found["problem"].endswith(", but all workers are draining")
    assert found["remedy"].startswith("windlass worker ")
    shell.register("w2", kinds=("other",))
    (found,) = problems(shell)
    assert found["problem"] == (
        "jobs of kind send_email are pending in queue default, "
        "but all workers that serve them are draining"
    )
    assert found["remedy"].startswith("windlass worker ")
    shell.register("w3")
    assert problems(shell) == []


def test_a_paused_queue_is_a_note_and_what_waits_in_it_is_no_problem(shell: Shell) -> None:
    shell.enqueue(queue="mail")
    shell.ok("queues", "pause", "mail")
    assert problems(shell) == []
    notes = shell.ok("doctor", "--json").json["notes"]
    assert {"problem": "queue mail is paused", "remedy": "windlass queues resume mail"} in notes


def test_a_schedule_that_no_worker_can_tick_is_a_problem_as_long_as_that_is_so(shop: Shell) -> None:
    shop.ok("migrate")
    store = SqliteStore(shop.file)
    mark = {"next": "2026-03-01T12:00:00Z", "why": "unknown time zone 'Mars/X'"}
    records: dict[str, Any] = {
        "unserved:daily news": mark,
        "unserved:old": mark,
        "unserved:mine": {"next": None},
    }
    records |= {"schedule:daily news": {"unserved": True}, "schedule:old": {}}
    decided = store.apply([*records], lambda _known, _now: Changes(answer=None, records=records))
    shop.store(decided, store)
    (found,) = problems(shop)
    assert found["problem"] == (
        "schedule daily news is due, but no worker can run it: unknown time zone 'Mars/X'"
    )
    assert found["remedy"].endswith("windlass schedules show 'daily news'")


def test_secrets_without_a_key_are_a_problem(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.write(
        "shop.py",
        "from windlass import Secret, Windlass\napp = Windlass()\n"
        "@app.job\nasync def charge(card: Secret[str]) -> None: ...\n"
        "@app.job\nasync def greet(name: str) -> None: ...\n",
    )
    (found,) = problems(shell, "shop:app")
    assert found["problem"] == "'charge' contains a Secret, but no encryption key is configured"
    assert "WINDLASS_ENCRYPTION_KEYS" in found["remedy"]
    assert "windlass keys new" in found["remedy"]
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", shell.ok("keys", "new").out.strip())
    assert problems(shell, "shop:app") == []


def test_dead_letters_that_grow_are_a_warning_with_the_way_to_look(shell: Shell) -> None:
    (job_id,) = shell.dead()
    report = shell("doctor", "--json").json
    assert report["facts"]["dead"] == "1 job"
    (note,) = [each for each in report["warnings"] if "grow" in each["problem"]]
    assert "1 job of kind send_email died of" in note["problem"]
    assert f"windlass dead show {job_id}; " in note["remedy"]
    with closing(sqlite3.connect(shell.file)) as db, db:
        db.execute("UPDATE jobs SET finished_at = finished_at - 600000000 WHERE state = 'dead'")
    report = shell("doctor", "--json").json
    assert report["facts"]["dead"] == "1 job"
    assert not [each for each in report["warnings"] if "grow" in each["problem"]], "ten minutes ago"


def notes(shell: Shell) -> list[str]:
    return [each["problem"] for each in shell.ok("doctor", "--json").json["notes"]]


def test_workers_of_several_releases_are_reported_by_their_names(shell: Shell) -> None:
    for name in ("w1", "w2"):
        shell.register(name, release=__version__)
    assert notes(shell) == []
    shell.register("w3", release="0.0.1")
    (told,) = notes(shell)
    assert told == (
        f"workers of several releases of windlass are alive (0.0.1: w3; {__version__}: w1, w2)"
    )
    for name in ("w1", "w2"):
        shell.retire(name)
    (told,) = notes(shell)
    assert told.startswith("workers run another release")
    shell.retire("w3")
    assert notes(shell) == ["no worker is alive"], "those that are gone do not matter"


@pytest.mark.parametrize(
    ("off", "told"), [(1, None), (-1, None), (90, "1m30s ahead of"), (-90, "1m30s behind")]
)
def test_a_host_whose_clock_differs_from_the_stores_is_reported(off: int, told: str | None) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    store = MemoryStore(clock=lambda: now)
    found = asyncio.run(checkup.clocks_apart(store, host_time=lambda: now + timedelta(seconds=off)))
    assert (found is None) is (told is None)
    if found is not None and told is not None:
        assert told in found.problem
        assert "NTP" in found.remedy


def test_a_worker_whose_clock_differs_from_the_stores_is_reported_with_its_host(
    shell: Shell,
) -> None:
    """Prevents deadlines that a handler computes from being wrong on one host, and nobody sees."""
    shell.ok("migrate")
    for name, host, off in (
        ("w1", "web-1", timedelta(seconds=1)),
        ("w2", "web-2", timedelta(seconds=90)),
        ("w3", "web-2", timedelta(seconds=89)),
        ("w4", "web-3", -timedelta(hours=1)),
        ("w5", "web-4", timedelta(hours=1)),
    ):
        shell.register(name, host=host)
        shell.beat(name, WorkerPulse(clock_ahead=off))
    shell.retire("w5")
    ahead, behind = problems(shell)
    assert ahead["problem"].startswith("the clock of host web-2 is 1m30s ahead of the store's")
    assert "(w2, w3)" in ahead["problem"]
    assert behind["problem"].startswith("the clock of host web-3 is 1h00m behind the store's")
    assert behind["remedy"].startswith("synchronise host web-3 and the store's host with NTP")
    store = SqliteStore(shell.file)
    workers = shell.store(store.workers(), store)
    (again,) = checkup.workers_clocks_apart(workers, reported={"web-2"})
    assert "web-3" in again.problem, "of the other one it is told already"
    facts = {
        each["id"]: each["clock_ahead"] for each in shell.ok("workers", "--json").json["workers"]
    }
    assert facts["w4"] == -3600


def test_of_many_hosts_with_wrong_clocks_some_are_named(shell: Shell) -> None:
    shell.ok("migrate")
    for number in range(12):
        shell.register(f"w{number}", host=f"web-{number:02}")
        shell.beat(f"w{number}", WorkerPulse(clock_ahead=timedelta(minutes=5 + number)))
    *told, rest = problems(shell)
    assert len(told) == 10
    assert rest["problem"] == "the clock of 2 more hosts differs from the store's"


def test_if_all_hosts_differ_alike_it_is_the_stores_clock(shell: Shell) -> None:
    shell.ok("migrate")
    for number in range(3):
        shell.register(f"w{number}", host=f"web-{number:02}")
        shell.beat(f"w{number}", WorkerPulse(clock_ahead=timedelta(minutes=5, milliseconds=number)))
    (told,) = problems(shell)
    assert "the store's clock" in told["problem"]
    assert "5m00s behind that of every host" in told["problem"]


def test_an_app_without_handlers_is_a_problem(shell: Shell) -> None:
    shell.write("shop.py", "from windlass import Windlass\napp = Windlass()\n")
    (found,) = problems(shell, "shop:app")
    assert "no handler is registered in shop:app" in found["problem"]


@pytest.mark.parametrize(
    ("files", "args"),
    [
        ({"windlass.toml": "concurrency = 'many'"}, ()),
        ({"windlass.toml": "= broken"}, ()),
        ({}, ("missing:app",)),
        ({"shop.py": "1 / 0"}, ("shop:app",)),
        (
            {"shop.py": "from windlass import Windlass\napp = Windlass(imports=['missing'])"},
            ("shop:app",),
        ),
    ],
)
def test_an_app_that_cannot_be_loaded_is_a_problem_in_one_json_document(
    shell: Shell, files: dict[str, str], args: tuple[str, ...]
) -> None:
    for name, text in files.items():
        shell.write(name, text)
    assert len(problems(shell, *args)) == 1
    said = shell("doctor", *args)
    assert said.code == 1
    assert "wrong" in said.out


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("def shelf():\n    return {}['book']\n\nshelf()", 2),
        ("import json\njson.loads('{')", 2),
        ("import sys\nsys.exit(3)", 2),
        ("def f(:", 1),
    ],
)
def test_an_app_that_cannot_be_imported_is_to_be_fixed_at_a_line_of_the_user(
    shell: Shell, source: str, line: int
) -> None:
    """Prevents: a remedy that names a command which shows no more than this one."""
    shell.write("shop.py", source)
    (found,) = problems(shell, "shop:app")
    assert found["remedy"] == f"fix {shell.directory / 'shop.py'}, line {line}"


@pytest.mark.parametrize(
    ("url", "problem", "remedy"),
    [
        ("sqlite:////nonexistent/x.db", "does not exist", "create it: mkdir -p /nonexistent"),
        ("sqlite:///text.db", "is not an SQLite database", "name another file, or restore"),
        ("oracle://x", "there is no store for", "use postgresql://"),
        (
            "postgresql://u@127.0.0.1:1/db",
            "Connection refused",
            "start the server, or correct its URL, which comes from --url",
        ),
    ],
)
def test_every_remedy_names_what_to_do(shell: Shell, url: str, problem: str, remedy: str) -> None:
    shell.write("text.db", "This is no database, and never was one. " * 40)
    (found,) = shell("doctor", "--json", "--url", url).json["problems"]
    assert problem in found["problem"]
    assert found["remedy"].startswith(remedy)


def test_a_missing_package_is_to_be_installed() -> None:
    error = ConfigError("a postgresql:// URL needs psycopg (no): pip install 'windlass[postgres]'")
    found = advice.of_store(error, "WINDLASS_URL")
    assert found.remedy == "pip install 'windlass[postgres]'"
    assert found.problem == "a postgresql:// URL needs psycopg (no)"


def test_the_verdict_comes_first_and_the_settings_last(shop: Shell) -> None:
    lines = shop.ok("doctor", "shop:app").out.splitlines()
    assert lines[0].startswith("all is well")
    settings = next(number for number, line in enumerate(lines) if line.startswith("setting"))
    facts = next(number for number, line in enumerate(lines) if line.startswith("windlass"))
    assert facts < settings
    shop.enqueue()
    said = shop("doctor", "shop:app")
    assert said.out.splitlines()[0].startswith("1 problem")


def test_memory_is_a_note(shell: Shell) -> None:
    said = shell.ok("doctor", "--url", "memory://")
    assert "app.run_worker()" in said.out
