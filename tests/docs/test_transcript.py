"""The comparison of shown and printed output lets through what varies, and nothing else."""

from __future__ import annotations

import pytest

from tests.docs.transcript import Exchange, Transcript, exchanges

ONE = "01a1e9b3-1512-758b-9a63-255f89c7d22c"
OTHER = "0197f3a2-6c1e-7b60-8000-3f1d2c4b5a69"


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (f"{ONE} pending", f"{OTHER} pending"),
        ("13:30:08 info  finished    89c7d22c  0.4ms", "09:01:59 info  finished  d73dddb8  12.1ms"),
        ('File "/home/you/shop.py", line 10', 'File "/tmp/a-1/b/shop.py", line 11'),
        ("──────", "────────────"),
        ("ran by laptop:29980:916d34da", "ran by vm:1:2eb459b6"),
        ("calls: 63", "calls: 64"),
    ],
)
def test_times_ids_numbers_and_directories_may_differ(shown: str, printed: str) -> None:
    assert Transcript().missing([shown], printed) == []


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (f"{ONE} pending", f"{OTHER} running"),
        ("1 dead job redriven", "0 dead jobs redriven"),
        ("first\nsecond", "second\nfirst"),
        ("a line", "a line and more"),
        ('File "/home/you/shop.py"', 'File "/home/you/other.py"'),
    ],
)
def test_other_words_and_another_order_are_found(shown: str, printed: str) -> None:
    assert Transcript().missing(shown.splitlines(), printed) != []


def test_an_id_of_the_page_stands_for_the_one_that_was_printed() -> None:
    transcript = Transcript()
    assert transcript.missing([f"{ONE} pending"], f"{OTHER} pending") == []
    assert transcript.translate(f"windlass why {ONE}") == f"windlass why {OTHER}"


def test_the_lines_below_a_command_are_its_output() -> None:
    text = "$ one\nfirst\n\nsecond\n$ two\n"
    assert list(exchanges(text)) == [
        Exchange("one", ["first", "second"]),
        Exchange("two", []),
    ]
