"""A black box tells what a process logged before it died, and never more than it may."""

from __future__ import annotations

import logging
import subprocess
import sys
from contextlib import closing

import pytest

from tests.support.inside_a_program import Inside
from windlass.observability.log_context import running
from windlass.process.exits.black_box import MAX_CHARACTERS, BlackBox, _Recorder

PROGRAM = """
import ctypes, logging, os, sys
from windlass.process.exits.black_box import BlackBox
BlackBox.attach(int(sys.argv[1]))
log = logging.getLogger("shop")
for n in range(int(sys.argv[2])):
    log.warning("line %d: \\0 \\ud800 %s", n, "x" * int(sys.argv[3]))
if os.fork() == 0:
    log.warning("by a fork")
    ctypes.string_at(0)
os.wait()
exec(sys.argv[4])
"""


def left_by(lines: int, width: int, end: str) -> str:
    """Return what is in the box of a process after its end."""
    with closing(BlackBox.create()) as box:
        told = [str(box.fd), str(lines), str(width), end]
        subprocess.run(
            [sys.executable, "-c", PROGRAM, *told],
            pass_fds=[box.fd],
            check=False,
            stderr=subprocess.DEVNULL,
        )
        return box.read()


def test_the_last_lines_of_a_killed_process_are_there_and_those_of_its_forks_are_not() -> None:
    text = left_by(3, 5, "os.kill(os.getpid(), 9)")
    assert [line.split("shop ")[1] for line in text.splitlines()] == [
        f"line {n}: \\x00 \\ud800 xxxxx" for n in range(3)
    ]


def test_where_a_process_was_when_it_died_of_a_signal_is_there() -> None:
    text = left_by(1, 5, "ctypes.string_at(0)")
    assert text.index("line 0") < text.index("Segmentation fault") < text.index("string_at")
    assert text.count("Segmentation fault") == 1


def test_the_thread_that_crashed_is_named_among_many() -> None:
    many = "import threading, time\nfor _ in range(60):\n"
    many += "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    text = left_by(100, 200, many + "ctypes.string_at(0)")
    assert "line 99:" in text
    assert "Current thread" in text
    assert "string_at" in text
    assert len(text) <= MAX_CHARACTERS


def test_only_the_last_lines_are_kept_and_whole_ones() -> None:
    lines = left_by(2_000, 30, "").splitlines()
    assert 20 < len(lines) <= 50
    for number, line in enumerate(lines, 2_000 - len(lines)):
        assert f"WARNING shop line {number}: " in line
        assert line.endswith("x" * 30)


def test_a_job_finds_its_own_lines_and_no_others() -> None:
    with closing(BlackBox.create()) as box:
        box.write("about nothing")
        box.write("first\nsecond", "a")
        box.write("third", "b")
        box.write("\tfourth", "a")
        assert box.read("a").splitlines() == ["first", "second", "\tfourth"]
        assert box.read("b") == "third"
        assert box.read("c") == ""
        assert len(box.read().splitlines()) == 5


@pytest.mark.parametrize("size", [1, 37, 1_000])
def test_many_short_lines_at_once_harm_no_others(size: int) -> None:
    with closing(BlackBox.create()) as box:
        for n in range(200):
            box.write("x\n" * size, "a" * 36)
            box.write(f"line {n}", "b")
        assert box.read("b").splitlines()[-1] == "line 199"
        assert set(box.read("a" * 36).splitlines()) == {"x"}


def test_a_line_is_about_the_job_that_it_names_or_in_which_it_was_logged() -> None:
    with closing(BlackBox.create()) as box:
        recorder = _Recorder(box)
        ours, theirs = {"event": "job.retried", "job_id": "a"}, {"event": "worker.started"}
        for message in (ours, theirs, "by a library"):
            recorder.emit(logging.makeLogRecord({"msg": message}))
        before = running.set(Inside({"job_id": "b"}))
        try:
            for message in (ours, theirs, "by a handler"):
                recorder.emit(logging.makeLogRecord({"msg": message}))
        finally:
            running.reset(before)
        assert box.read("a").count("job.retried") == len(box.read("a").splitlines()) == 2
        assert "by a handler" in box.read("b")
        assert "by a library" not in box.read("b")


def test_a_box_that_was_cleared_tells_only_what_came_after() -> None:
    with closing(BlackBox.create()) as box:
        box.write("before")
        box.clear()
        assert box.read() == ""
        box.write("after")
        assert box.read() == "after"
