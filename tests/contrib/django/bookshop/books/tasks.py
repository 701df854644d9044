"""The tasks of the bookshop, as a user writes them."""

from __future__ import annotations

import os

import django

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

from books.models import Book

if os.environ.get("BOOKSHOP_BROKEN"):
    raise LookupError("there is no such printer")


@task
def order(title: str, copies: int = 1) -> int:
    """Order copies of a book."""
    book, _ = Book.objects.get_or_create(title=title)
    book.copies += copies
    book.save()
    return book.copies


@task
async def aorder(title: str) -> int:
    """Order a copy of a book."""
    book, _ = await Book.objects.aget_or_create(title=title)
    book.copies += 1
    await book.asave()
    return book.copies


@task
def lose(title: str) -> None:
    """Raise, after a change that must not stay."""
    raise LookupError(title)


@task
def where() -> int:
    """Return the process in which this runs."""
    return os.getpid()


@task
def order_twice(title: str) -> None:
    """Enqueue two others."""
    order.enqueue(title)
    order.enqueue(title, copies=2)
