"""The bookshop's own tests, which its `manage.py test` runs: they show the test helper."""

from __future__ import annotations

from datetime import timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.test import TestCase, TransactionTestCase
from django.utils import timezone

from books.models import Book
from books.tasks import aorder, lose, order, order_twice
from windlass.contrib.django import windlass_app
from windlass.contrib.django.testing import travel


class InTheTestsTransaction(TestCase):
    """A `TestCase` never commits; its jobs run all the same."""

    def setUp(self) -> None:
        """Put jobs in memory."""
        self.t = self.enterContext(travel())

    def test_a_task_sees_what_the_test_has_not_committed(self) -> None:
        Book.objects.create(title="Emma", copies=3)
        result = order.enqueue("Emma", copies=2)
        self.t.run_due()
        assert Book.objects.get().copies == 5
        self.t.assert_completed(order, result=5)
        result.refresh()
        assert result.return_value == 5

    def test_the_next_test_finds_nothing_of_it(self) -> None:
        assert not Book.objects.exists()
        self.t.assert_not_enqueued(order)

    def test_an_async_task_sees_it_too(self) -> None:
        Book.objects.create(title="Emma", copies=3)
        aorder.enqueue("Emma")
        self.t.run_due()
        self.t.assert_completed(aorder, result=4)

    async def test_an_async_test_runs_jobs_as_well(self) -> None:
        await Book.objects.acreate(title="Emma", copies=3)
        await order.aenqueue("Emma")
        result = await aorder.aenqueue("Emma")
        await self.t.arun_due()
        await result.arefresh()
        assert result.return_value == 5
        assert (await Book.objects.aget()).copies == 5

    def test_a_rolled_back_block_takes_its_jobs_along(self) -> None:
        with self.assertRaises(LookupError), transaction.atomic():
            order.enqueue("Emma")
            raise LookupError
        with transaction.atomic():
            kept = order.enqueue("Persuasion")
        self.t.run_due()
        self.t.assert_completed(kept)
        assert [book.title for book in Book.objects.all()] == ["Persuasion"]

    def test_jobs_that_jobs_enqueue_run_too(self) -> None:
        order_twice.enqueue("Emma")
        self.t.run_due()
        self.t.assert_completed(order, count=2)
        assert Book.objects.get().copies == 3

    def test_arguments_select_jobs(self) -> None:
        order.enqueue("Emma", copies=2)
        order.enqueue("Persuasion")
        self.t.enqueue_waiting()
        self.t.assert_enqueued(self.t.draft(order, "Emma", 2), count=1)
        with self.assertRaisesRegex(AssertionError, "books.tasks.lose"):
            self.t.assert_enqueued(lose)

    def test_a_failure_is_dead(self) -> None:
        result = lose.enqueue("Emma")
        self.t.run_all()
        self.t.assert_dead(lose, error=LookupError)
        result.refresh()
        assert result.errors[0].exception_class is LookupError

    def test_time_passes_by_hand(self) -> None:
        later = self.t.now + timedelta(days=30)
        order.using(run_after=later).enqueue("Emma")
        self.t.advance("29d")
        assert not Book.objects.exists()
        self.t.advance("1d")
        assert Book.objects.get().copies == 1

    def test_callbacks_of_others_wait_for_the_commit_as_before(self) -> None:
        ran = []
        transaction.on_commit(lambda: ran.append(1))
        order.enqueue("Emma")
        self.t.run_due()
        self.t.assert_completed(order)
        assert ran == []


class WithoutATransaction(TransactionTestCase):
    """Here blocks commit."""

    def test_jobs_run_with_the_connection_of_the_test(self) -> None:
        with travel() as t:
            Book.objects.create(title="Emma", copies=3)
            order.enqueue("Emma")
            with self.assertRaises(LookupError), transaction.atomic():
                order.enqueue("Emma", copies=100)
                raise LookupError
            t.run_due()
            assert Book.objects.get().copies == 4

    def test_without_the_helper_no_job_reaches_a_real_store(self) -> None:
        result = order.using(run_after=timezone.now()).enqueue("Emma")
        assert windlass_app().store.location == "memory://"
        result.refresh()
        assert result.status == "READY"


class InTheAdmin(TestCase):
    """The admin leads to the page."""

    def test_staff_find_the_page(self) -> None:
        self.client.force_login(User.objects.create_superuser("ada"))
        page = self.client.get("/admin/").content.decode()
        assert 'href="https://jobs.example.org/"' in page
        assert "Windlass" in page

    def test_nobody_else_does(self) -> None:
        page = self.client.get("/admin/", follow=True).content.decode()
        assert "jobs.example.org" not in page
