"""The settings of the shop; SHOP_DATA names the directory of its data."""

from __future__ import annotations

import os
from pathlib import Path

import django

BASE_DIR = Path(__file__).parent.parent
DATA = Path(os.environ.get("SHOP_DATA", BASE_DIR))
SECRET_KEY = "for this example only"
DEBUG = True
USE_TZ = True
ROOT_URLCONF = "site_config.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DATA / "shop.sqlite3"}}
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    *([] if django.VERSION >= (6, 0) else ["django_tasks"]),
    "windlass.contrib.django",
    "orders",
]
TASKS = {
    "default": {
        "BACKEND": "windlass.contrib.django.WindlassBackend",
        "QUEUES": [],  # Any queue.
        "OPTIONS": {
            "concurrency": 20,
            "tasks": {"orders.tasks.confirm": {"timeout": "30s", "max_retries": 5}},
        },
    }
}
