"""The ledger: lines of many processes, whole and in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from windlass.chaos.ledger import VARIABLE, Ledger


def test_lines_come_back_in_the_order_of_their_times(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.write("begin", job="a", attempt=2, name="plain", mark="m")
    ledger.write("end", job="a", attempt=2, name="plain", mark="m")

    first, second = ledger.entries()
    assert (first.what, first.job, first.attempt, first.name, first.mark) == (
        "begin",
        "a",
        2,
        "plain",
        "m",
    )
    assert (second.what, second.pid) == ("end", os.getpid())
    assert first.at <= second.at


def test_the_jobs_of_one_call_are_lines_of_one_mark(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.write_all("offered", [("a", "plain"), ("b", "paced")], mark="7")

    found = [(each.what, each.job, each.name, each.mark) for each in ledger.entries()]
    assert found == [("offered", "a", "plain", "7"), ("offered", "b", "paced", "7")]


def test_an_empty_ledger_has_no_lines(tmp_path: Path) -> None:
    assert Ledger(tmp_path / "ledger").entries() == []


def test_an_unfinished_last_line_is_left_out(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.write("begin")
    path = tmp_path / f"{os.getpid()}.jsonl"
    path.write_bytes(path.read_bytes() + b'["end", 1.')

    assert [entry.what for entry in ledger.entries()] == ["begin"]


def test_a_killed_process_leaves_every_line_that_it_wrote(tmp_path: Path) -> None:
    program = (
        "from windlass.chaos.ledger import Ledger\n"
        "ledger, number = Ledger.of_environment(), 0\n"
        "while True:\n"
        "    number += 1\n"
        "    ledger.write('line', mark=str(number))\n"
        "    print(number, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, VARIABLE: str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = [int(process.stdout.readline()) for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    rest = [int(line) for line in process.communicate()[0].splitlines()]

    written = [int(entry.mark) for entry in Ledger(tmp_path).entries()]
    last = (said + rest)[-1]
    assert written in (list(range(1, last + 1)), list(range(1, last + 2)))


def test_a_forked_process_writes_a_file_of_its_own(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.write("parent")
    program = (
        "import os\n"
        "from windlass.chaos.ledger import Ledger\n"
        "ledger = Ledger.of_environment()\n"
        "ledger.write('first')\n"
        "if os.fork(): os.wait()\n"
        "else: ledger.write('second')\n"
    )
    env = {**os.environ, VARIABLE: str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=env, check=True)

    by_what = {entry.what: entry.pid for entry in ledger.entries()}
    assert len(set(by_what.values())) == len(by_what) == 3
