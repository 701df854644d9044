"""The Django shop passes its own tests, and its worker confirms an order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHOP = ROOT / "examples/django_shop"


def manage(data: Path, *arguments: str) -> str:
    """Run a command of the shop, whose data is in a directory of its own."""
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=SHOP,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SHOP_DATA": str(data),
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_shop_passes_its_own_tests(tmp_path: Path) -> None:
    assert "No changes detected" in manage(tmp_path, "makemigrations", "--check", "--dry-run")
    assert "Ran 3 tests" in manage(tmp_path, "test")


def test_an_order_is_confirmed_by_a_worker(tmp_path: Path) -> None:
    manage(tmp_path, "migrate")
    order = (
        "from django.test import Client; "
        "print(Client().post('/orders/', {'article': 'cup', 'email': 'a@example.org'}).json())"
    )
    manage(tmp_path, "shell", "-c", order)
    manage(tmp_path, "windlass", "worker", "--burst")
    look = "from orders.models import Order; print([o.confirmed for o in Order.objects.all()])"
    assert "[True]" in manage(tmp_path, "shell", "-c", look)
