"""A task in a module that nothing imports."""

from __future__ import annotations

from tests.support.django_tasks import task


@task
def later(name: str) -> None: ...
