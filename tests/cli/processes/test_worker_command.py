"""The two ways in which `windlass worker` is read, which must mean the same."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from windlass.cli.commands import worker as worker_command
from windlass.cli.processes.worker_command import VALUED, Typed, WorkerCommand, read_typed
from windlass.cli.root_command import cli


def by_typer(words: list[str], monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Return the command as typer reads it."""
    read: list[Typed] = []

    def supervise(command: WorkerCommand, *, reload: bool) -> int:
        flags = {name: value for name, value in command.flags.items() if value is not None}
        read.append(Typed(command._replace(flags=flags), reload))
        return 0

    monkeypatch.setattr(worker_command, "supervise", supervise)
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    return read[0]


PLAIN = [
    ["worker", "shop.jobs:app"],
    ["worker", "shop.jobs:app.inner", "--processes", "4", "--concurrency=10..50"],
    ["worker", "--queues", "mail=10,reports", "shop:app", "--name", "left", "--burst"],
    ["--debug", "worker", "shop:app", "--insecure", "--reload"],
    ["worker", "shop:app", "--debug", "--url=postgresql://a=b@c/d?e=f"],
    ["worker", "shop:app", "--lease", "20s", "--lease", "30s"],
    ["worker", "--app", "shop:app", "--burst"],
    ["worker", "other:app", "--app=shop:app"],
    *(["worker", "shop:app", f"--{name.replace('_', '-')}", "a"] for name in VALUED),
]


@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_plain_commands_are_read_as_typer_reads_them(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WINDLASS_APP", raising=False)
    typed = read_typed(words, {})
    assert typed is not None
    assert typed == by_typer(words, monkeypatch)


def test_the_app_of_the_environment_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_APP", "shop.jobs:app")
    typed = read_typed(["worker"], {"WINDLASS_APP": "shop.jobs:app"})
    assert typed is not None
    assert typed == by_typer(["worker"], monkeypatch)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--help"],
        ["worker"],
        ["worker", "--help"],
        ["worker", "-h"],
        ["worker", "shop:app", "other:app"],
        ["worker", "shop.py"],
        ["worker", "shop.py:app"],
        ["--burst", "worker", "shop:app"],
        ["--url=memory://", "worker", "shop:app"],
        ["worker", "shop/jobs:app"],
        ["worker", "shop:app", "--slots", "3"],
        ["worker", "shop:app", "--lease"],
        ["worker", "shop:app", "--lease="],
        ["worker", "shop:app", "--queues", " "],
        ["worker", "shop:app", "--lease", "--burst"],
        ["worker", "shop:app", "--burst=yes"],
        ["worker", "shop:app", "--poll_interval", "1s"],
        ["worker", "--drain", "17"],
        ["worker", "--", "shop:app"],
        ["worker", "--app", "shop.py"],
        ["jobs", "list"],
    ],
    ids=" ".join,
)
def test_wrong_or_unusual_commands_are_left_to_typer(words: list[str]) -> None:
    assert read_typed(words, {}) is None


@pytest.mark.parametrize("variable", ["WINDLASS_DEBUG", "_WINDLASS_COMPLETE"])
def test_debugging_and_completion_are_left_to_typer(variable: str) -> None:
    assert read_typed(["worker", "shop:app"], {variable: "1"}) is None
