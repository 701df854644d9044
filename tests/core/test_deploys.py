"""Deploy marks: the newest are kept, and an error is new if it was first seen after one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from windlass.core.deploys import (
    MAX_MARKS,
    DeployMark,
    find_mark,
    is_new_since,
    read_marks,
    with_mark,
)
from windlass.core.errors import ConfigError
from windlass.core.records import Json

_START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_the_newest_marks_are_kept_and_come_first() -> None:
    record: Json | None = None
    for number in range(MAX_MARKS + 10):
        mark = DeployMark(name=f"v{number}", at=_START + timedelta(hours=number), by="ada")
        record = with_mark(record, mark)
    marks = read_marks(record)
    assert len(marks) == MAX_MARKS
    assert marks[0] == DeployMark(name=f"v{MAX_MARKS + 9}", at=marks[0].at, by="ada")
    assert [each.at for each in marks] == sorted((each.at for each in marks), reverse=True)


def test_the_latest_mark_of_a_name_counts() -> None:
    record = with_mark(None, DeployMark(name="v1", at=_START))
    record = with_mark(record, DeployMark(name="v2", at=_START + timedelta(hours=1)))
    record = with_mark(record, DeployMark(name="v1", at=_START + timedelta(hours=2)))
    assert find_mark(read_marks(record), "v1").at == _START + timedelta(hours=2)
    with pytest.raises(ConfigError, match=r"no deploy 'v3'.*v1, v2, v1.*windlass deploys mark"):
        find_mark(read_marks(record), "v3")


def test_an_error_is_new_if_it_was_first_seen_after_the_deploy() -> None:
    mark = DeployMark(name="v1", at=_START)
    assert is_new_since(_START + timedelta(seconds=1), mark)
    assert not is_new_since(_START - timedelta(seconds=1), mark)
    assert not is_new_since(None, mark)
    assert is_new_since(None, None)


@pytest.mark.parametrize("record", [{"marks": 7}, {"marks": [{"name": "v1"}]}, {"other": 1}])
def test_a_record_of_another_release_has_no_marks_and_takes_new_ones(record: Json) -> None:
    assert read_marks(record) == []
    assert [each.name for each in read_marks(with_mark(record, _mark()))] == ["v1"]


def _mark() -> DeployMark:
    return DeployMark(name="v1", at=_START)
