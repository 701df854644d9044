"""What the shop keeps."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """An order."""

    name = models.CharField(max_length=100)

    class Meta:
        """Under a name of its own, whatever the path of this module."""

        app_label = "shop"
