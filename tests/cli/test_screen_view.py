"""What keys do in `windlass top`, without a terminal: `press` is pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cli.sights import busy, error, looked, queue, worker
from windlass.cli.screen.panels import ERRORS, KINDS, QUEUES, WORKERS, Looked
from windlass.cli.screen.view import Lever, View, Wish, position, press, rows_of
from windlass.core.job import job_id
from windlass.core.metrics import NAMES
from windlass.core.pauses import Pauses


class Hand:
    """Somebody who presses keys, and what they look at."""

    def __init__(self, sight: Looked | None, view: View | None = None) -> None:
        self.sight = sight
        self.view = view or View()
        self.wish: Wish | None = None

    def press(self, *keys: str) -> Hand:
        for key in keys:
            rows = rows_of(self.sight, self.view.filter)
            self.view, self.wish = press(self.view, key, rows, self.sight)
        return self

    @property
    def question(self) -> str:
        return "" if self.view.asked is None else self.view.asked.question

    @property
    def inspected(self) -> str:
        row = None if self.wish is None else self.wish.inspect
        return "" if row is None else row.key

    @property
    def chosen(self) -> str:
        rows = rows_of(self.sight, self.view.filter)
        return rows[self.view.panel][position(self.view, rows)].key


def test_panels_are_chosen_by_number_and_in_turn() -> None:
    hand = Hand(busy())
    assert hand.press("3").view.panel == ERRORS
    assert hand.press("tab").view.panel == WORKERS
    assert hand.press("tab").view.panel == QUEUES
    assert hand.press("back").view.panel == WORKERS
    assert hand.press("left", "left").view.panel == KINDS
    assert hand.press("5", "9", "0", "²").view.panel == KINDS


def test_the_queue_in_which_most_jobs_wait_comes_first() -> None:
    assert [row.key for row in rows_of(busy(), "")[QUEUES]] == ["mail", "billing", "images"]


def test_rows_are_chosen_and_no_key_leaves_the_panel() -> None:
    hand = Hand(busy())
    assert hand.press("up", "page up").chosen == "mail"
    assert hand.press("j").chosen == "billing"
    assert hand.press("G", "down").chosen == "images"
    assert hand.press("home").chosen == "mail"


def test_a_row_stays_chosen_when_others_come_before_it() -> None:
    hand = Hand(busy()).press("down")
    assert hand.chosen == "billing"
    hand.sight = looked(queues=(queue("new", pending=10**6), queue("billing", pending=1)))
    assert hand.chosen == "billing"
    hand.sight = looked(queues=(queue("new", pending=10**6),))
    assert hand.chosen == "new", "it is gone: the first"


def test_a_pause_is_asked_for_and_only_y_is_yes() -> None:
    hand = Hand(busy()).press("p")
    assert hand.question == "pause queue mail, 1,204 waiting; what runs goes on?"
    for no in ("n", "escape", "enter", "p", "q", "paste:y", " "):
        other = Hand(busy(), hand.view).press(no)
        assert (other.wish, other.view.asked) == (None, None), no
        assert other.view.note == "nothing was changed"
    hand.press("y")
    assert hand.wish == Wish(pull=Lever(verb="pause", what="queue", name="mail"))
    assert hand.question == ""


def test_what_is_paused_is_resumed() -> None:
    hand = Hand(busy()).press("j", "p", "y")
    assert hand.wish == Wish(pull=Lever(verb="resume", what="queue", name="billing"))
    sight = replace(busy(), pauses=Pauses(kinds=frozenset({"send_email"})))
    hand = Hand(sight).press("2", "p", "y")
    assert hand.wish == Wish(pull=Lever(verb="resume", what="kind", name="send_email"))
    hand.press("j", "p", "y")
    assert hand.wish == Wish(pull=Lever(verb="pause", what="kind", name="resize_image"))


def test_what_was_asked_is_what_is_done_whatever_has_come_first_since() -> None:
    """Prevents: another queue gets to the top while somebody reads the question."""
    hand = Hand(busy()).press("p")
    hand.sight = looked(queues=(queue("other", pending=10**6), *busy().stats.queues))
    hand.press("y")
    assert hand.wish == Wish(pull=Lever(verb="pause", what="queue", name="mail"))
    assert hand.chosen == "mail"


def test_a_redrive_says_of_how_many_jobs() -> None:
    hand = Hand(busy()).press("3", "r")
    assert hand.question == (
        "redrive 3 dead jobs of send_email, ConnectionError: mx1.example.org is gone?"
    )
    hand.press("y")
    lever = Lever(verb="redrive", what="error", name="a3f09c11d2", kind="send_email")
    assert hand.wish == Wish(pull=lever)


def test_where_nobody_is_dead_nothing_is_redriven() -> None:
    hand = Hand(looked(errors=(error(dead=0),))).press("3", "r")
    assert hand.view.asked is None
    assert "no job is dead" in hand.view.note


def test_what_stands_for_many_queues_is_not_paused() -> None:
    """Prevents: a pause of a queue called `other`, which is none of those that are meant."""
    many = tuple(queue(f"q{number:03}") for number in range(NAMES))
    hand = Hand(looked(queues=(queue("other", pending=9), *many))).press("p")
    assert hand.view.asked is None
    assert "several queues" in hand.view.note
    few = Hand(looked(queues=(queue("other", pending=9),))).press("p")
    assert few.view.asked is not None, "here it is one that is called so"


@pytest.mark.parametrize(("keys", "told"), [(("3", "p"), "p pauses"), (("4", "r"), "r redrives")])
def test_where_a_key_does_nothing_it_says_what_it_is_for(keys: tuple[str, ...], told: str) -> None:
    hand = Hand(busy()).press(*keys)
    assert told in hand.view.note
    assert hand.press("j").view.note == ""


@pytest.mark.parametrize("sight", [None, looked()])
@pytest.mark.parametrize("key", ["p", "enter", "down", "G", "r"])
def test_nothing_is_done_to_no_row(sight: Looked | None, key: str) -> None:
    for panel in range(4):
        hand = Hand(sight, View(panel=panel)).press(key)
        assert (hand.wish, hand.view.asked, hand.view.sheet) == (None, None, None)


def test_a_filter_is_typed_kept_and_taken_back() -> None:
    hand = Hand(busy()).press("/", "B", "i", "x", "backspace", "l")
    assert hand.view.typing
    assert hand.chosen == "billing"
    assert not hand.press("enter").view.typing
    assert hand.press("p", "y").wish == Wish(
        pull=Lever(verb="resume", what="queue", name="billing")
    )
    assert hand.press("escape").view.filter == ""
    assert hand.press("/", "paste:mail\r", "down", "clear", "paste:mail\n").view.filter == "mail"
    assert hand.press("escape").view == replace(View(), chosen=hand.view.chosen)


def test_while_a_filter_is_typed_letters_are_letters() -> None:
    hand = Hand(busy()).press("/", "q", "p", "r", "?", "1")
    assert (hand.view.filter, hand.wish, hand.view.asked) == ("qpr?1", None, None)


def test_a_sheet_is_turned_and_closed_and_q_leaves_only_from_the_panels() -> None:
    hand = Hand(busy()).press("enter")
    assert hand.inspected == "mail"
    assert hand.press("down", "page down", "up").view.top == 10
    hand.press("enter")
    assert (hand.view.sheet, hand.view.top) == ("row", 10), "enter looks again, at the same place"
    assert hand.inspected == "mail"
    hand.press("q")
    assert (hand.view.sheet, hand.view.top, hand.inspected) == (None, 0, "")
    assert hand.press("?").view.sheet == "help"
    assert hand.press("escape", "!").view.sheet == "alarms"
    assert hand.press("!").view.sheet is None
    assert hand.press("q").wish == Wish(quit=True)


def test_a_lever_is_pulled_from_the_sheet_of_its_row_as_well() -> None:
    hand = Hand(busy()).press("j", "enter", "p", "y")
    assert hand.wish == Wish(pull=Lever(verb="resume", what="queue", name="billing"))


def test_nobody_is_troubled_by_workers() -> None:
    hand = Hand(looked(workers=(worker(),))).press("4", "enter")
    assert hand.inspected == "web1-41"


def test_on_a_sheet_with_jobs_one_is_chosen_and_shown() -> None:
    jobs = (job_id(1, 1), job_id(2, 2), job_id(3, 3))
    hand = Hand(busy()).press("enter")
    assert hand.inspected == "mail"
    hand.view = replace(hand.view, jobs=jobs)
    assert hand.press("up").view.job == 0
    assert hand.press("down", "down", "down", "down").view.job == 2
    hand.press("up", "enter")
    assert (hand.view.sheet, hand.wish) == ("job", Wish(show=jobs[1]))
    assert hand.press("r").view.note.startswith("r retries a job"), "nothing is known of it yet"
    assert hand.press("escape").view.sheet == "row"
    assert hand.view.job == 1, "it stays chosen"
    assert hand.press("escape").view.sheet is None
