"""`windlass migrate` and `windlass doctor`: what is there, what is wrong, and how to mend it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from windlass.app.doctor import advice
from windlass.core.errors import ConfigError
from windlass.store.sqlite.connections.file import MIGRATIONS, SCHEMA

if TYPE_CHECKING:
    from tests.cli.conftest import Shell
from tests.cli.doctor.reports import problems


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


@pytest.mark.parametrize(
    ("file", "content", "remedy"),
    [
        (".env", b"WINDLASS_MAX_RETRIES=abc", "correct WINDLASS_MAX_RETRIES in .env"),
        (".env", b"WINDLASS_URL=x.db", "correct WINDLASS_URL in .env"),
        (".env", b"WINDLASS_CONFIG=none.toml", "correct WINDLASS_CONFIG, or the file it names"),
        ("windlass.toml", b"max_retries = 'abc'", "correct max_retries in windlass.toml"),
        ("windlass.toml", b"bogus = 1", "remove 'bogus', or correct its name"),
        ("windlass.toml", b"lease_ = 1", "did you mean 'lease'?"),
        ("windlass.toml", b"a = = 1", "correct windlass.toml"),
        ("windlass.toml", b"\xff\xfe", "correct windlass.toml"),
    ],
)
def test_the_remedy_for_a_wrong_setting_names_that_setting(
    shell: Shell, file: str, content: bytes, remedy: str
) -> None:
    """Prevents an empty remedy, and one about the app, which has nothing to do with it."""
    (shell.directory / file).write_bytes(content)
    (found,) = problems(shell)
    assert found["remedy"] == remedy


@pytest.mark.parametrize("variable", ["WINDLASS_ENCRYPTION_KEYS", "WINDLASS_CONCURRENCY"])
def test_the_remedy_for_a_wrong_variable_is_not_in_the_code_that_reads_it(
    shop: Shell, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "abc")
    (found,) = shop("doctor", "--json", "--app", "shop:app").json["problems"]
    assert found["problem"].startswith(f"importing 'shop' failed: {variable} must be")
    assert found["remedy"] == f"correct {variable}"


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
