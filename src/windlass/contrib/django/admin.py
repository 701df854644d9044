"""Owns the entry in Django's admin that leads to the web page; Django imports it by its name.

No model has a table, hence there are no migrations: the entry is added to the list of apps.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from django.contrib import admin

from windlass.contrib.django.project_apps import windlass_aliases, windlass_app


def entries() -> list[dict[str, Any]]:
    """Return a link for each backend whose OPTIONS name the address of its web page."""
    apps = [windlass_app(alias) for alias in windlass_aliases()]
    shown = [app for app in apps if app.options.web_url]
    return [
        {
            "name": "Jobs" if len(shown) == 1 else f"Jobs ({app.alias})",
            "object_name": "Jobs",
            "perms": {"add": False, "change": False, "delete": False, "view": True},
            "admin_url": app.options.web_url,
            "add_url": None,
            "view_only": True,
        }
        for app in shown
    ]


def add_entry(site: Any) -> None:
    """Let an admin site list the page: `add_entry(site)` for a site of your own.

    Staff see the entry. The page itself decides whom it lets in.
    """
    listed = site.get_app_list

    @wraps(listed)
    def get_app_list(request: Any, app_label: str | None = None) -> list[dict[str, Any]]:
        apps: list[dict[str, Any]] = listed(request, app_label)
        links = (
            entries() if app_label in (None, "windlass") and site.has_permission(request) else []
        )
        if not links:
            return apps
        entry = {
            "name": "Windlass",
            "app_label": "windlass",
            "app_url": links[0]["admin_url"],
            "has_module_perms": True,
            "models": links,
        }
        return [*apps, entry]

    site.get_app_list = get_app_list


add_entry(admin.site)
