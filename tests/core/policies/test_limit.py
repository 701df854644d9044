"""Limits as people write them, and what they are in tokens."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.core.errors import ConfigError
from windlass.core.policies.limit import (
    Change,
    Limit,
    Measure,
    Rate,
    Tokens,
    checked_units,
    limit_of_app,
    limit_of_kind,
    read_rate,
    shard_of,
)

NOTHING: dict[str, Any] = {
    "rate": None,
    "burst": None,
    "concurrency": None,
    "per": None,
    "ordered": False,
    "has_key": False,
}


def of_kind(**options: Any) -> Limit | None:
    return limit_of_kind("crawl", **NOTHING | options)


def limit(**options: Any) -> Limit:
    found = of_kind(**options)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10/s", Rate(10, 1)),
        (" 100 / m ", Rate(100, 60)),
        ("1000/h", Rate(1000, 3600)),
        ("5/d", Rate(5, 86400)),
    ],
)
def test_a_rate_is_so_many_in_a_unit_of_time(text: str, rate: Rate) -> None:
    assert read_rate(text) == rate
    assert read_rate(str(rate)) == rate


@pytest.mark.parametrize(
    "nonsense",
    ["", "10", "s", "/s", "10/", "10/x", "-1/s", "1.5/s", "10/s/s", "ten/s", "٣/s", 10, None, "0/s",
     "99999999/s"],
)  # fmt: skip
def test_invalid_rates_are_refused(nonsense: object) -> None:
    with pytest.raises(ValueError, match=r"'10/s'|from 1 to"):
        read_rate(nonsense)


def test_a_limit_is_so_many_tokens_which_cool_for_the_period_of_the_rate() -> None:
    assert limit(rate="10/s").tokens() == {Measure.RATE: Tokens(10, 1.0)}
    assert limit(rate="100/m", burst=10).tokens() == {Measure.RATE: Tokens(10, 6.0)}
    assert limit(concurrency=3).tokens() == {Measure.CONCURRENCY: Tokens(3)}
    assert limit(rate="1/m", concurrency=2).tokens().keys() == {*Measure}


def test_a_kind_without_options_has_no_limit() -> None:
    assert of_kind() is None
    assert of_kind(has_key=True) is None


def test_a_limit_goes_by_the_key_if_there_is_one() -> None:
    assert not limit(concurrency=1).keyed
    assert limit(concurrency=1, has_key=True).keyed
    assert not limit(concurrency=1, has_key=True, per="kind").keyed
    assert limit(concurrency=1, has_key=True, per="key").keyed
    assert limit(ordered=True, has_key=True).concurrency == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rate": "ten"}, "kind 'crawl': a rate must be a number per unit of time, got 'ten'"),
        ({"rate": "0/s"}, "a rate must be a whole number from 1"),
        ({"rate": ""}, "unit of time, got ''"),
        ({"concurrency": 0}, "a concurrency must be a whole number from 1"),
        ({"concurrency": -1}, "got -1"),
        ({"concurrency": True}, "got True"),
        ({"concurrency": 1.5}, "got 1.5"),
        ({"rate": "1/s", "burst": 0}, "a burst must be a whole number from 1"),
        ({"burst": 5}, "burst= needs rate="),
        ({"per": "key", "rate": "1/s"}, "per='key' needs key="),
        ({"per": "tenant", "rate": "1/s"}, "per must be 'kind' or 'key'"),
        ({"per": "kind"}, "needs rate= or concurrency="),
        ({"ordered": True}, "needs key="),
        ({"ordered": True, "has_key": True, "per": "kind"}, "combined with per='kind'"),
        ({"ordered": True, "has_key": True, "concurrency": 2}, "leave out concurrency=2"),
    ],
)
def test_options_that_make_no_limit_are_refused_by_name(options: Any, told: str) -> None:
    with pytest.raises(ConfigError, match="kind 'crawl'") as refusal:
        of_kind(**options)
    assert told in str(refusal.value)


def of_app(name: str | None = None, **options: Any) -> Limit:
    told = {"queue": None, "rate": None, "burst": None, "concurrency": None, **options}
    return limit_of_app(name, **told)


def test_an_app_limits_resources_and_queues() -> None:
    assert of_app("gpu", concurrency=8) == Limit(name="gpu", concurrency=8)
    assert of_app(queue="mail", rate="1/s") == Limit(name="queue:mail", rate=Rate(1, 1))


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        (None, {"concurrency": 1}, "either a name or queue="),
        ("gpu", {"queue": "mail", "concurrency": 1}, "either a name or queue="),
        ("gpu", {}, "needs rate= or concurrency="),
        ("gpu", {"burst": 1}, "needs rate= or concurrency="),
        ("gpu", {"concurrency": 0}, "limit 'gpu': a concurrency"),
        ("kind:gpu", {"concurrency": 1}, "are reserved"),
        ("", {"concurrency": 1}, "must have a name"),
        (None, {"queue": " ", "concurrency": 1}, "must have a name"),
    ],
)
def test_a_limit_of_an_app_that_cannot_be_is_refused(name: Any, options: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        of_app(name, **options)


def test_an_amount_is_of_a_resource() -> None:
    assert checked_units("crawl", None, 1) == 1
    assert checked_units("crawl", "gpu", 2) == 2
    with pytest.raises(ConfigError, match="needs limit="):
        checked_units("crawl", None, 2)
    with pytest.raises(ConfigError, match="units must be a whole number"):
        checked_units("crawl", "gpu", 0)


def test_a_changed_limit_wins_and_omitted_parts_stay() -> None:
    coded = limit(rate="10/s", burst=5, concurrency=3)
    change = Change.of(rate="20/m").written()
    assert change == {"rate": "20/m"}
    changed = coded.changed(change)
    assert (changed.rate, changed.burst, changed.concurrency) == (Rate(20, 60), None, 3)
    assert coded.changed({"concurrency": 7}).concurrency == 7
    assert coded.changed({"burst": 7}).burst == 7
    assert coded.changed({}) == coded
    assert limit(concurrency=1).changed({"burst": 7}).burst is None, "without a rate there is none"


def test_an_order_stays_strict_whatever_is_changed() -> None:
    assert limit(ordered=True, has_key=True).changed({"concurrency": 5}).concurrency == 1


def test_a_record_that_somebody_spoilt_changes_nothing() -> None:
    coded = limit(rate="10/s", concurrency=3)
    assert coded.changed({"rate": "fast", "concurrency": "many", "burst": -1, "x": 1}) == coded
    with pytest.raises(ValueError, match="a change of a limit needs"):
        Change.of()


def test_keys_are_spread_over_records_the_same_way_for_ever() -> None:
    assert [shard_of(key) for key in ("", "acme", "ü")] == [0, 62, 21]
    assert len({shard_of(str(number)) for number in range(1000)}) == 64
    keyed = limit(concurrency=1, has_key=True)
    assert keyed.record("acme") == "limit:kind:crawl/62"
    assert limit(concurrency=1).record("") == "limit:kind:crawl"
