"""Tokens: never more than there are, never too early, and none gets lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.core.policies.limit import Tokens
from windlass.core.policies.limit_grants import Reply, Wish, freed, serve
from windlass.core.policies.limit_holding import TokenHolding
from windlass.core.records import Json

THREE = Tokens(3)
RATE = Tokens(3, 10.0)


def ask(
    account: Json, worker: str, wish: Wish, *, tokens: Tokens = THREE, now: float = 0.0, **more: Any
) -> tuple[Json, Reply]:
    served = serve(account, {"k": wish}, worker=worker, tokens=tokens, now=now, **more)
    return served.account, served.replies["k"]


def want(most: int, *, keeps: int = 0, least: int = 1) -> Wish:
    return Wish(keeps=keeps, least=least, most=most)


# -- the account -----------------------------------------------------------------------------------


def test_a_worker_gets_what_is_free_and_not_more() -> None:
    account, reply = ask({}, "a", want(2))
    assert (reply.held, reply.granted) == (2, 2)
    account, reply = ask(account, "b", want(5))
    assert (reply.held, reply.granted) == (1, 1)
    account, reply = ask(account, "c", want(1))
    assert (reply.held, reply.granted) == (0, 0)
    assert account["holds"] == {"a": {"k": 2}, "b": {"k": 1}}


def test_tokens_given_back_are_free_at_once_and_leave_no_entry() -> None:
    account, _ = ask({}, "a", want(3))
    account, _ = ask(account, "a", Wish())
    assert account == {}


def test_holders_of_tokens_learn_of_a_wish_that_cannot_be_met() -> None:
    account, _ = ask({}, "a", want(3))
    account, _ = ask(account, "b", want(3), now=1.0)
    account, reply = ask(account, "a", Wish(keeps=3), now=2.0)
    assert (reply.wanted, reply.share) == (True, 2)
    account, reply = ask(account, "a", Wish(keeps=2), now=2.5)
    account, reply = ask(account, "b", want(3), now=2.6)
    assert reply.held == 1
    account, reply = ask(account, "a", Wish(keeps=2), now=2.7)
    assert not reply.wanted, "its wish was met"


def test_a_wish_that_is_not_repeated_is_forgotten() -> None:
    account, _ = ask({}, "a", want(3))
    account, _ = ask(account, "b", want(3), now=1.0)
    account, reply = ask(account, "a", Wish(keeps=3), now=9.0)
    assert not reply.wanted
    assert "wants" not in account


def test_while_others_want_some_nobody_gets_more_than_a_share() -> None:
    account, _ = ask({}, "a", want(3))
    account, _ = ask(account, "b", want(3))
    account, _ = ask(account, "a", Wish(keeps=0))
    account, reply = ask(account, "a", want(3))
    assert reply.granted == 2
    account, reply = ask(account, "a", want(3, keeps=2))
    assert reply.granted == 0, "the third is for the other"
    account, reply = ask(account, "b", want(3))
    assert reply.granted == 1


def test_fewer_than_are_of_use_are_not_granted() -> None:
    account, _ = ask({}, "a", want(2))
    account, reply = ask(account, "b", want(4, least=2))
    assert reply.granted == 0
    assert account["wants"] == {"k": {"b": 0.0}}
    account, _ = ask(account, "a", Wish())
    account, reply = ask(account, "b", want(4, least=2))
    assert reply.granted == 3


def test_a_wish_for_many_tokens_is_not_starved_by_wishes_for_few() -> None:
    """Prevents: others take each token that comes free, and there are never enough of them."""
    account, _ = ask({}, "a", want(3))
    account, reply = ask(account, "b", want(3, least=3))
    assert reply.granted == 0
    account, reply = ask(account, "a", Wish(keeps=1), now=0.5)
    assert reply.share == 0, "all of it is for the other, as it comes free"
    account, reply = ask(account, "c", want(1), now=0.6)
    assert reply.granted == 0, "it came later"
    account, _ = ask(account, "a", Wish(), now=0.8)
    account, reply = ask(account, "c", want(1), now=0.9)
    assert reply.granted == 0, "who was here before keeps its turn"
    account, reply = ask(account, "b", want(3, least=3), now=1.0)
    assert reply.granted == 3
    assert set(account["starving"]["k"]) == {"c"}


def test_the_longest_waiting_holder_gets_the_next_free_tokens() -> None:
    """Prevents: who has the only token uses it again and again, and nobody else ever does."""
    account, _ = ask({}, "a", want(3))
    account, reply = ask(account, "b", want(1))
    account, reply = ask(account, "c", want(1), now=0.1)
    account, reply = ask(account, "d", want(1), now=0.2)
    for name in "bcd":
        account, reply = ask(account, name, want(1), now=2.0)
    account, reply = ask(account, "a", Wish(keeps=3), now=2.1)
    assert (reply.wanted, reply.share) == (True, 0)


def test_two_holders_that_want_the_whole_limit_get_it_one_after_the_other() -> None:
    """Prevents: each keeps a part that is of no use, and waits for the other's for ever."""
    account, _ = ask({}, "a", want(3, least=3))
    account, reply = ask(account, "b", want(3, least=3))
    assert reply.granted == 0
    account, reply = ask(account, "a", Wish())
    account, reply = ask(account, "b", want(3, least=3))
    assert reply.granted == 3


def test_used_tokens_cool_before_they_are_given_out() -> None:
    account, _ = ask({}, "a", want(3), tokens=RATE)
    back = Wish(keeps=0, cools=((4.0, 2),))
    account, _ = ask(account, "a", back, tokens=RATE, now=5.0)
    account, reply = ask(account, "b", want(3), tokens=RATE, now=8.9)
    assert reply.granted == 1
    assert reply.after == pytest.approx(0.1)
    account, reply = ask(account, "c", want(3), tokens=RATE, now=9.0)
    assert reply.granted == 2


def test_a_word_of_unknown_fate_can_be_said_again() -> None:
    account, _ = ask({}, "a", want(3), tokens=RATE)
    back = Wish(keeps=1, cools=((10.0, 2),))
    account, _ = ask(account, "a", back, tokens=RATE)
    again, reply = ask(account, "a", back, tokens=RATE)
    assert reply.held == 1
    assert again == account


def test_a_grant_whose_answer_was_lost_goes_back() -> None:
    account, _ = ask({}, "a", want(3))
    account, reply = ask(account, "a", Wish(keeps=0))
    assert reply.held == 0
    assert account == {}


def test_a_worker_drops_tokens_that_others_took() -> None:
    account, _ = ask({}, "a", want(3))
    account, _ = ask(account, "b", want(3), ended={"a"})
    account, reply = ask(account, "a", Wish(keeps=3))
    assert reply.held == 0


def test_the_tokens_of_an_ended_worker_are_free_and_those_of_a_rate_cool_first() -> None:
    account, _ = ask({}, "a", want(3))
    account, reply = ask(account, "b", want(3), ended={"a"})
    assert reply.granted == 3
    account, _ = ask({}, "a", want(3), tokens=RATE)
    account, reply = ask(account, "b", want(3), tokens=RATE, ended={"a"}, now=5.0)
    assert (reply.granted, reply.after) == (0, 10.0)
    account, reply = ask(account, "b", want(3), tokens=RATE, ended={"a"}, now=15.0)
    assert reply.granted == 3


def test_the_token_of_a_job_that_is_on_its_way_back_is_not_free_yet() -> None:
    account, _ = ask({}, "a", want(1))
    account, reply = ask(account, "b", want(3), ended={"a"}, busy={"k"})
    assert reply.granted == 2
    account, reply = ask(account, "b", want(3, keeps=2), ended={"a"})
    assert reply.granted == 1


def test_a_lowered_limit_takes_effect_as_tokens_come_back() -> None:
    account, _ = ask({}, "a", want(3))
    one = Tokens(1)
    account, reply = ask(account, "a", Wish(keeps=3), tokens=one)
    assert (reply.wanted, reply.share) == (True, 1)
    account, reply = ask(account, "b", want(1), tokens=one)
    assert reply.granted == 0
    account, reply = ask(account, "a", Wish(keeps=1), tokens=one)
    account, reply = ask(account, "b", want(1), tokens=one)
    assert reply.granted == 0
    account, reply = ask(account, "a", Wish(keeps=0), tokens=one)
    account, reply = ask(account, "b", want(1), tokens=one)
    assert reply.granted == 1


def test_a_clock_that_is_set_back_keeps_no_token_for_longer_than_it_cools() -> None:
    account, _ = ask({}, "a", want(3), tokens=RATE, now=1000.0)
    back = Wish(keeps=0, cools=((10.0, 3),))
    account, _ = ask(account, "a", back, tokens=RATE, now=1000.0)
    account, reply = ask(account, "b", want(3), tokens=RATE, now=100.0)
    assert reply.after == 10.0


# -- several workers, by any sequence of events ----------------------------------------------------


class Cluster:
    """Workers with their ledgers, one record, and a clock that all share for once."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.now = 0.0
        self.account: Json = {}
        self.ledgers: dict[str, TokenHolding] = {}
        self.running: list[tuple[str, int]] = []
        self.starts: list[float] = []
        self.ended: set[str] = set()
        self.born = Counter[str]()

    def ledger(self, slot: int) -> tuple[str, TokenHolding]:
        worker = f"{slot}.{self.born[str(slot)]}"
        return worker, self.ledgers.setdefault(worker, TokenHolding(self.tokens))

    def speak(self, slot: int, *, most: int, give: int, lost: bool) -> None:
        worker, ledger = self.ledger(slot)
        ledger.tick(self.now)
        wish = ledger.wish(self.now, least=1 if most else 0, most=most, give=give)
        served = serve(
            self.account,
            {"k": wish},
            worker=worker,
            tokens=self.tokens,
            now=self.now,
            ended=self.ended,
        )
        self.account = served.account
        if not lost:
            assert ledger.take_in(wish, served.replies["k"])

    def use(self, slot: int) -> None:
        worker, ledger = self.ledger(slot)
        ledger.tick(self.now)
        if not ledger.free:
            return
        if self.tokens.cools:
            ledger.start(len(self.starts), 1, self.now)
            ledger.started(len(self.starts), self.now)
            self.starts.append(self.now)
        else:
            ledger.take(1)
            self.running.append((worker, 1))

    def finish(self, slot: int) -> None:
        for run in self.running:
            if run[0] == f"{slot}.{self.born[str(slot)]}":
                self.ledgers[run[0]].bring(1)
                self.running.remove(run)
                return

    def die(self, slot: int) -> None:
        worker, _ = self.ledger(slot)
        self.ended.add(worker)
        self.running = [run for run in self.running if run[0] != worker]
        self.born[str(slot)] += 1

    def check(self) -> None:
        held = sum(keys.get("k", 0) for keys in self.account.get("holds", {}).values())
        cooling = sum(count for _, count in self.account.get("cooling", {}).get("k", ()))
        assert held + cooling <= self.tokens.capacity
        assert len(self.running) <= self.tokens.capacity
        for at in self.starts:
            window = [each for each in self.starts if at <= each < at + self.tokens.cools]
            assert len(window) <= self.tokens.capacity


SLOT = st.integers(0, 2)

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("speak"), SLOT, st.integers(0, 6), st.integers(0, 6), st.booleans()),
        st.tuples(st.just("use"), SLOT),
        st.tuples(st.just("finish"), SLOT),
        st.tuples(st.just("die"), SLOT),
        st.tuples(st.just("pass"), st.floats(0, 8)),
    ),
    max_size=60,
)


@pytest.mark.parametrize("cools", [0.0, 5.0])
@settings(max_examples=300, deadline=None)
@given(events=EVENTS, capacity=st.integers(1, 5))
def test_there_is_never_more_than_the_limit_whatever_happens(
    events: list[tuple[Any, ...]], capacity: int, cools: float
) -> None:
    cluster = Cluster(Tokens(capacity, cools))
    for name, *told in events:
        match name:
            case "speak":
                slot, most, give, lost = told
                cluster.speak(slot, most=most, give=give, lost=lost)
            case "pass":
                cluster.now += told[0]
            case _:
                getattr(cluster, name)(told[0])
        cluster.check()
    for slot in range(3):
        while any(run[0].startswith(f"{slot}.") for run in cluster.running):
            cluster.finish(slot)
        cluster.speak(slot, most=0, give=99, lost=False)
    cluster.now += cools + 3.1  # By then wishes that nobody repeats are forgotten.
    cluster.speak(0, most=99, give=0, lost=False)
    cluster.speak(0, most=99, give=0, lost=False)
    assert cluster.ledger(0)[1].free == capacity, "nothing has leaked"


# -- what a person sets free -----------------------------------------------------------------------

ONE = Tokens(1)


def test_tokens_held_back_in_the_account_are_free_at_once() -> None:
    account, _ = ask({}, "a", want(1), tokens=ONE)
    account, _ = ask(account, "a", Wish(cools=((60.0, 1),)), tokens=ONE)
    assert ask(account, "b", want(1), tokens=ONE, now=1.0)[1].granted == 0
    account = freed(account, "k")
    assert account == {}, "nobody holds it, so that nobody has to be told"
    assert ask(account, "b", want(1), tokens=ONE, now=1.0)[1].granted == 1


def test_a_holder_of_spare_tokens_is_asked_once_to_give_them_back() -> None:
    account, _ = ask({}, "a", want(1), tokens=ONE)
    account = freed(account, "k")
    account, reply = ask(account, "b", want(1), tokens=ONE)
    assert not reply.freed, "it holds nothing"
    account, reply = ask(account, "a", Wish(keeps=1), tokens=ONE)
    assert (reply.freed, reply.held) == (True, 1)
    account, reply = ask(account, "a", Wish(keeps=1), tokens=ONE)
    assert not reply.freed


def test_tokens_given_back_after_they_were_freed_do_not_cool() -> None:
    account, _ = ask({}, "a", want(1), tokens=ONE)
    account, _ = ask(freed(account, "k"), "a", Wish(cools=((60.0, 1),)), tokens=ONE)
    assert ask(account, "b", want(1), tokens=ONE, now=1.0)[1].granted == 1
    other = {"holds": {"a": {"k": 1}}}
    assert freed(other, "another") == other, "a key of which nothing is out is left alone"


def test_a_worker_lets_go_of_what_it_holds_back_but_not_of_what_a_claim_may_have() -> None:
    ledger = TokenHolding(ONE)
    ledger.idle = 1
    ledger.take(1)
    assert not ledger.release(), "it is in use"
    ledger.hold_back(1, 60.0)
    assert (ledger.free, ledger.release(), ledger.free) == (0, True, 1)
    assert ledger.doubt(2) == 1
    ledger.tick(1_000.0)
    assert (ledger.release(), ledger.free, ledger.held) == (False, 0, 1)
    ledger.resolve(1)
    assert (ledger.free, ledger.held) == (1, 1)
