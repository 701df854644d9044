"""What Tab completes from the store: quickly, silently, and without making one."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from tests.support.screens import Glass, bash_in
from windlass.cli import completion
from windlass.cli.root_command import cli

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

NOISY = """
import sys
print("noise")
print("noise", file=sys.stderr)
from windlass import Windlass
app = Windlass()

@app.job(queue="mail")
async def build_report() -> None: ...
"""


def completed(shell: Shell, *words: str, **environ: str) -> list[str]:
    """Return what bash is told when Tab is pressed at the end of some words, and nothing else."""
    sys.modules.pop("noisy", None)
    asked = {
        "_WINDLASS_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["windlass", *words]),
        "COMP_CWORD": str(len(words)),
    }
    said = CliRunner().invoke(cli, [], env={**asked, **environ}, prog_name="windlass")
    assert said.stderr == ""
    return said.stdout.split()


def test_ids_kinds_and_queues_are_completed_from_the_store(shell: Shell) -> None:
    first, second = shell.enqueue("send_email", queue="mail", count=2)
    shell.enqueue("build_report", queue="slow")
    everything = completed(shell, "jobs", "show", "")
    assert len(everything) == 3
    assert everything[1:] == [str(second), str(first)], "the newest comes first"
    assert completed(shell, "why", str(first)[:35]) == [str(first)]
    assert completed(shell, "dead", "show", "") == []
    assert completed(shell, "flows", "show", "") == []
    assert completed(shell, "jobs", "cancel", str(first), str(second)[:-1]) == [str(second)]
    assert completed(shell, "jobs", "list", "--kind", "") == ["build_report", "send_email"]
    assert completed(shell, "dead", "purge", "--queue", "m") == ["mail"]
    assert completed(shell, "queues", "pause", "s") == ["slow"]
    assert completed(shell, "enqueue", "b") == ["build_report"]
    (dead,) = shell.dead("third")
    assert completed(shell, "dead", "redrive", "") == [str(dead)]


def test_an_app_is_asked_for_its_kinds_and_what_it_prints_is_not_completed(shell: Shell) -> None:
    shell.write("noisy.py", NOISY)
    shell.enqueue("send_email")
    words = ("jobs", "list", "--app", "noisy:app", "--kind", "")
    assert completed(shell, *words) == ["build_report", "send_email"]


def test_no_store_is_created_and_no_error_is_shown(shell: Shell) -> None:
    assert completed(shell, "jobs", "show", "") == []
    assert completed(shell, "jobs", "list", "--kind", "") == []
    assert list(shell.directory.iterdir()) == []
    shell.write("broken.py", "import sys\nsys.exit(3)\n")
    for environ in (
        {"WINDLASS_APP": "broken:app"},
        {"WINDLASS_URL": "postgresql://u:p@127.0.0.1:1/none"},
        {"WINDLASS_URL": "nonsense"},
    ):
        assert completed(shell, "jobs", "list", "--queue", "", **environ) == []


@pytest.mark.parametrize("begun", ["send", "zzzz", "0197-", "0" * 40])
def test_text_that_is_no_prefix_of_an_id_completes_nothing(shell: Shell, begun: str) -> None:
    shell.enqueue()
    assert completed(shell, "jobs", "retry", begun) == []


def test_a_store_that_does_not_answer_is_given_up(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look is bounded: what takes longer completes nothing."""
    monkeypatch.setattr(completion, "_TIMEOUT_SECONDS", 0.0)
    shell.enqueue()

    class Context:
        params: dict[str, str] = {}  # noqa: RUF012

    assert completion.job_ids(Context(), "") == []  # type: ignore[arg-type]


def test_the_script_completes_in_a_real_shell(shell: Shell, glasses: list[Glass]) -> None:
    (job,) = shell.enqueue("send_email", queue="mail")
    asked = {"_WINDLASS_COMPLETE": "source_bash"}
    script = CliRunner().invoke(cli, [], env=asked, prog_name="windlass").stdout
    shell.write("completion.bash", script)
    (shell.directory / "bin").mkdir()
    program = shell.directory / "bin" / "windlass"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m windlass "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    glasses.append(Glass(bash_in(shell.directory, PATH=path), columns=120, lines=24))
    glass = glasses[-1]
    glass.sees("ready>")
    glass.type("source completion.bash\n")
    glass.type(f"windlass jobs show {str(job)[:13]}\t")
    glass.sees(f"windlass jobs show {job}")
