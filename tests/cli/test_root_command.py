"""The command line as a whole: help, exit codes, and errors that are one line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from windlass.cli.root_command import COMMANDS as SUMMARIES
from windlass.core.errors import ConfigError
from windlass.version import __version__

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

COMMANDS = [
    "demo",
    "new",
    "worker",
    "enqueue",
    "jobs list",
    "jobs show",
    "jobs run",
    "jobs retry",
    "jobs cancel",
    "why",
    "dead list",
    "dead show",
    "dead redrive",
    "dead purge",
    "queues list",
    "queues pause",
    "queues resume",
    "limits list",
    "limits set",
    "limits reset",
    "breakers list",
    "breakers show",
    "breakers open",
    "breakers close",
    "breakers probe",
    "breakers auto",
    "schedules list",
    "schedules show",
    "schedules next",
    "schedules pause",
    "schedules resume",
    "schedules run",
    "schedules remove",
    "stats",
    "top",
    "web",
    "slo",
    "workers",
    "keys new",
    "keys rotate",
    "migrate",
    "restored park",
    "restored list",
    "restored missing",
    "restored release",
    "restored cancel",
    "doctor",
    "check",
]


_NO_LOOKS = ("demo", "new", "worker", "top", "web", "keys new")
"""Commands that do not answer with a document."""


def test_the_release_is_shown(shell: Shell) -> None:
    assert shell.ok("--version").out == f"windlass {__version__}\n"


def test_the_help_lists_every_command_in_the_order_a_newcomer_needs_them(shell: Shell) -> None:
    text = shell.ok("--help").out.partition("Commands:")[2]
    named = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    assert named[:-1] == [  # The last line is a hint.
        "demo",
        "new",
        "worker",
        "enqueue",
        "jobs",
        "why",
        "dead",
        "queues",
        "schedules",
        "bulk",
        "flows",
        "events",
        "limits",
        "breakers",
        "stats",
        "top",
        "web",
        "slo",
        "workers",
        "audit",
        "check",
        "deploys",
        "keys",
        "migrate",
        "restored",
        "doctor",
        "chaos",
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_an_example_of_itself(shell: Shell, command: str) -> None:
    text = shell.ok(*command.split(), "--help").out
    assert "Example:\n    windlass " + command in text


@pytest.mark.parametrize(
    "command",
    [each for each in COMMANDS if each not in _NO_LOOKS],
)
def test_every_command_that_looks_into_a_store_takes_a_url_and_can_write_json(
    shell: Shell, command: str
) -> None:
    text = shell.ok(*command.split(), "--help").out
    assert "--url" in text
    assert "--json" in text


@pytest.mark.parametrize(
    "args",
    [
        ("nonsense",),
        ("--nonsense",),
        ("jobs", "nonsense"),
        ("jobs", "list", "--state", "lost"),
        ("jobs", "list", "--limit", "0"),
        ("jobs", "list", "--after", "last"),
        ("jobs", "show"),
        ("jobs", "show", "019"),
        ("jobs", "retry"),
        ("jobs", "cancel", "0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69-0"),
        ("demo", "--jobs", "3"),
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_exit_code_2_and_leaves_no_store_behind(
    shell: Shell, args: tuple[str, ...]
) -> None:
    shell(*args).refused(code=2)
    assert list(shell.directory.iterdir()) == []


def test_a_wrong_value_is_refused_without_words_of_a_library(shell: Shell) -> None:
    said = shell("jobs", "list", "--state", "lost")
    said.refused("'--state': 'lost' is not one of 'scheduled',", code=2)


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--slots", None),
        ("--concurency", "--concurrency"),
        ("--shutdown", "--shutdown-timeout"),
        ("--thread", "--threads"),
    ],
)
def test_an_unknown_option_suggests_what_is_near_and_nothing_else(
    shell: Shell, option: str, meant: str | None
) -> None:
    said = shell("worker", option, "5")
    said.refused(f"No such option: {option}", code=2)
    assert re.findall(r"options: (.*)\)", said.err) == ([] if meant is None else [meant])


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("nonsense", "--url must be a URL"),
        ("mysql://ann:S3cret@host/db", "there is no store for 'mysql' URLs"),
        ("postgresql://ann:S3cret@127.0.0.1:1/db", "onnection refused"),
        ("postgresql://ann:S3cret@host/db?sslmod=on", 'invalid URI query parameter: "sslmod"'),
        ("sqlite://two/slashes.db", "three or four slashes"),
        ("memory://", "use a shared store like sqlite:///windlass.db"),
        ("sqlite:///missing.db", "there is no store at "),
    ],
)
@pytest.mark.parametrize("command", ["jobs list", "workers"])
def test_a_store_that_cannot_be_read_is_reported_in_one_line(
    shell: Shell, command: str, url: str, told: str
) -> None:
    said = shell(*command.split(), "--url", url)
    said.refused(told)
    assert said.out == ""
    assert "S3cret" not in said.err


def test_to_look_is_not_to_create(shell: Shell) -> None:
    shell("jobs", "list").refused(str(shell.file), "windlass migrate")
    assert not shell.file.exists()


def test_a_file_that_is_not_a_database_is_reported_in_one_line(shell: Shell) -> None:
    shell.write("windlass.db", "not a database, whatever its name says" * 10)
    shell("jobs", "list").refused("is not an SQLite database")


@pytest.mark.parametrize("switch", ["flag", "flag behind", "variable"])
def test_debug_shows_where_an_error_came_from(
    shell: Shell, switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if switch == "variable":
        monkeypatch.setenv("WINDLASS_DEBUG", "1")
    flags = ["--debug"] if switch == "flag" else []
    behind = ["--debug"] if switch == "flag behind" else []
    with pytest.raises(ConfigError):
        shell(*flags, "jobs", "list", *behind)


def test_errors_are_inert(shell: Shell) -> None:
    said = shell("jobs", "list", "--app", "a\x1b[31m\nb:app")
    said.refused("a\\x1b[31m\\nb")
    assert "\x1b" not in said.err


def test_the_module_can_be_run_where_the_script_is_not_on_the_path(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "windlass", "jobs", "list"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: there is no store at ")


@pytest.mark.parametrize("name", SUMMARIES)
def test_the_list_of_commands_says_how_the_help_of_each_begins(name: str, shell: Shell) -> None:
    words = " ".join(shell.ok(name, "--help").out.split())
    assert SUMMARIES[name].removesuffix(".") in words
    assert f"{name} " in shell.ok("--help").out
