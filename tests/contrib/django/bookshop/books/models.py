"""What the bookshop keeps."""

from __future__ import annotations

from django.db import models


class Book(models.Model):
    """A book."""

    title = models.CharField(max_length=100)
    copies = models.IntegerField(default=0)
