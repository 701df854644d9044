"""A worker counts its tokens: those of running jobs, of claims, and those that cool."""

from __future__ import annotations

from typing import Any

from windlass.core.policies.limit import Tokens
from windlass.core.policies.limit_grants import Reply, Wish
from windlass.core.policies.limit_holding import TokenHolding

THREE = Tokens(3)
RATE = Tokens(3, 10.0)


# -- a worker's ledger -----------------------------------------------------------------------------


def filled(tokens: Tokens, slack: float = 0.0, **more: Any) -> TokenHolding:
    ledger = TokenHolding(tokens, slack, **more)
    wish = ledger.wish(0.0, least=1, most=tokens.capacity)
    count = tokens.capacity
    assert ledger.take_in(wish, Reply(count, count, False, count, None))
    return ledger


def test_a_job_has_its_tokens_for_as_long_as_it_runs() -> None:
    ledger = filled(THREE)
    ledger.take(2)
    assert (ledger.free, ledger.held) == (1, 3)
    ledger.take(2)
    assert (ledger.free, ledger.held) == (0, 3), "a debt, but no more tokens"
    ledger.bring(4)
    assert (ledger.free, ledger.held) == (3, 3)


def test_tokens_reserved_for_a_claim_are_not_given_away() -> None:
    ledger = filled(THREE)
    ledger.reserved = 2
    assert ledger.wish(0.0, give=3).keeps == 2
    assert ledger.free == 0


def test_a_start_cools_from_its_end_or_from_when_it_is_known_to_have_begun() -> None:
    begun: set[str] = set()
    ledger = filled(RATE, 0.5, has_begun=begun.__contains__)
    for job in ("short", "long", "late"):
        ledger.start(job, 1, 0.0)
    assert (ledger.free, ledger.held) == (0, 3)
    ledger.started("short", 0.1)
    begun.add("long")
    ledger.tick(0.6)
    begun.add("late")
    ledger.tick(1.2)
    moments = []
    for tenths in range(300):
        before = ledger.free
        ledger.tick(tenths / 10)
        moments += [tenths / 10] * (ledger.free - before)
    assert moments == [10.1, 10.6, 11.2]


def test_a_start_that_was_not_is_refunded() -> None:
    ledger = filled(RATE)
    ledger.start("job", 2, 0.0)
    ledger.refund("job")
    ledger.started("job", 0.0)
    assert (ledger.free, ledger.held) == (3, 3)


def test_many_starts_are_counted_in_portions_that_are_never_early() -> None:
    many = Tokens(100_000, 1.0)
    ledger = filled(many)
    for number in range(100_000):
        ledger.start(number, 1, number / 100_000)
        ledger.started(number, number / 100_000)
    assert len(ledger._cooling) <= 1_001
    ledger.tick(1.5)
    assert 49_000 <= ledger.free <= 50_001
    ledger.tick(2.01)
    assert ledger.free == 100_000


def test_cooling_tokens_are_given_back_with_their_remaining_time() -> None:
    ledger = filled(RATE)
    ledger.start("job", 2, 0.0)
    ledger.started("job", 0.0)
    wish = ledger.wish(4.0, give=3)
    assert wish == Wish(keeps=0, cools=((6.0, 2),))
    assert ledger.wish(5.0).cools == ((5.0, 2),), "said again until it is known to be heard"
    assert ledger.take_in(wish, Reply(0, 0, False, 3, None))
    assert ledger.wish(5.0).cools == ()


def test_a_key_is_held_back_for_as_long_as_its_job_backs_off() -> None:
    ledger = filled(Tokens(1))
    ledger.take(1)
    ledger.hold_back(1, 5.0)
    ledger.tick(4.9)
    assert (ledger.free, ledger.next_tick) == (0, 5.0)
    ledger.tick(5.0)
    assert ledger.free == 1
