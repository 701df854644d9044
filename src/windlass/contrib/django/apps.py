"""Owns the entry in INSTALLED_APPS, and that `manage.py migrate` makes the store as well."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate

from windlass.contrib.django.options import is_under_test
from windlass.contrib.django.project_apps import windlass_aliases, windlass_app


class WindlassConfig(AppConfig):
    """Windlass in a Django project."""

    name = "windlass.contrib.django"
    label = "windlass"
    verbose_name = "Windlass"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Let the store be migrated together with the project's models."""
        post_migrate.connect(migrate_stores, sender=self, dispatch_uid="windlass.migrate")


def migrate_stores(*, using: str, verbosity: int = 1, **_: Any) -> None:
    """Make or update the stores that belong to a database, after `manage.py migrate`."""
    if is_under_test():
        return  # Jobs are in memory there.
    for alias in windlass_aliases():
        app = windlass_app(alias)
        if app.options.migrate and app.options.database == using:
            applied = app.portal.call(app.store.migrate())
            if verbosity and applied:
                print(f"  Windlass: applied {', '.join(applied)} to {app.store.location}")  # noqa: T201
