"""The one configuration of Django for a process of tests: it can be configured only once.

Tests replace its databases and its TASKS; see tests/contrib/django/conftest.py.
"""

from __future__ import annotations

import django
from django.conf import settings

MEMORY = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
BACKEND = "windlass.contrib.django.WindlassBackend"
FRAMEWORK = [] if django.VERSION >= (6, 0) else ["django_tasks"]


def configure_django() -> None:
    """Configure Django and load its apps, unless that is done."""
    if settings.configured:
        return
    settings.configure(
        USE_TZ=True,
        SECRET_KEY="only for tests",
        ALLOWED_HOSTS=["testserver"],
        DATABASES={"default": dict(MEMORY)},
        TASKS={"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"url": "memory://"}}},
        ROOT_URLCONF="tests.contrib.django.shop.urls",
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        INSTALLED_APPS=[
            "django.contrib.admin",
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.messages",
            "django.contrib.sessions",
            *FRAMEWORK,
            "windlass.contrib.django",
            "tests.contrib.django.shop",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
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
        ],
    )
    django.setup()
