"""The settings of the bookshop; a test says by the environment where its data is."""

from __future__ import annotations

import json
import os

import django

SECRET_KEY = "only for tests"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "addresses"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": json.loads(os.environ["BOOKSHOP_DATABASE"])}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    *([] if django.VERSION >= (6, 0) else ["django_tasks"]),
    "windlass.contrib.django",
    "books",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
_OPTIONS = json.loads(os.environ.get("BOOKSHOP_OPTIONS", "{}"))
TASKS = {
    "default": {
        "BACKEND": "windlass.contrib.django.WindlassBackend",
        "QUEUES": [],
        "OPTIONS": {"max_retries": 0, "web_url": "https://jobs.example.org/", **_OPTIONS},
    }
}
if os.environ.get("BOOKSHOP_SECOND"):
    TASKS["second"] = {
        "BACKEND": "windlass.contrib.django.WindlassBackend",
        "OPTIONS": {"url": os.environ["BOOKSHOP_SECOND"]},
    }
