"""Owns the permissions for the web page, which Django makes for models, after `manage.py migrate`.

There are no tables, hence no migrations. Django also sends `post_migrate` only to apps with a
module of this name, and by it `manage.py migrate` makes the store.
"""

from __future__ import annotations

from typing import Any

from django.db import models


class NoRows(models.Manager):
    """Finds nothing, and asks no database: `dumpdata` reads every model."""

    def get_queryset(self) -> Any:
        """Return an empty queryset."""
        return super().get_queryset().none()


class Jobs(models.Model):
    """What the permissions are about; it has no table."""

    objects = NoRows()

    class Meta:
        """Permissions, and no table."""

        managed = False
        default_permissions = ()
        permissions = (
            ("operate_jobs", "Can retry, cancel and pause jobs"),
            ("administer_jobs", "Can purge, edit and enqueue jobs, and change limits"),
        )
        base_manager_name = "objects"
        verbose_name_plural = "jobs"
