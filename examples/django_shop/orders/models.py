"""The table of orders."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """An order, which a task confirms."""

    article = models.CharField(max_length=50)
    email = models.EmailField()
    confirmed = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"{self.article} for {self.email}"
