"""A task by a second name."""

from tests.contrib.django.shop.tasks import note

__all__ = ["note"]
