"""What happens to orders, without a worker and without waiting."""

from __future__ import annotations

from django.test import TestCase

from orders import tasks
from orders.models import Order
from windlass.contrib.django.testing import travel


class Orders(TestCase):
    """Orders that are made by requests."""

    def setUp(self) -> None:
        self.t = self.enterContext(travel())

    def test_an_order_is_confirmed(self) -> None:
        answer = self.client.post("/orders/", {"article": "cup", "email": "ada@example.org"})
        self.assertEqual(answer.status_code, 202)
        self.t.run_due()
        self.t.assert_completed(tasks.confirm, result="confirmed cup for ada@example.org")
        self.assertTrue(Order.objects.get().confirmed)

    def test_an_order_that_is_rolled_back_has_no_job(self) -> None:
        answer = self.client.post("/orders/", {"article": "unicorn", "email": "ada@example.org"})
        self.assertEqual(answer.status_code, 409)
        self.t.run_due()
        self.t.assert_not_enqueued(tasks.confirm)
        self.assertFalse(Order.objects.exists())

    def test_a_mail_server_that_is_away_is_tried_again(self) -> None:
        tasks.MAIL_SERVER["up"] = False
        self.addCleanup(tasks.MAIL_SERVER.update, up=True)
        self.client.post("/orders/", {"article": "cup", "email": "ada@example.org"})
        self.t.run_due()
        self.t.assert_enqueued(tasks.confirm)
        tasks.MAIL_SERVER["up"] = True
        self.t.advance("10m")
        self.assertEqual(self.t.assert_completed(tasks.confirm).attempt, 2)
