"""The tasks of orders, written as Django documents them."""

from __future__ import annotations

import django

from orders.models import Order

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

MAIL_SERVER = {"up": True}
"""Stands for a mail server; tests turn it off."""


@task(queue_name="mail", priority=10)
def confirm(order_id: int) -> str:
    """Mark an order as confirmed, and tell the customer."""
    if not MAIL_SERVER["up"]:
        raise ConnectionError("the mail server does not answer")
    order = Order.objects.get(pk=order_id)
    order.confirmed = True
    order.save()
    return f"confirmed {order}"


@task
async def count_open() -> int:
    """Count the orders that are not confirmed."""
    return await Order.objects.filter(confirmed=False).acount()
