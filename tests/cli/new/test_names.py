"""Names of packages and handlers are valid Python, and shadow nothing that a project imports."""

from __future__ import annotations

import re

import pytest

from windlass.cli.new.names import check_handler_name, check_package_name


@pytest.mark.parametrize("name", ["shop", "shop2", "my_shop", "a", "a" * 30, "shop.jobs"])
def test_a_name_of_a_package_is_taken(name: str) -> None:
    assert check_package_name(name) == name


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("my-shop", "my_shop"),
        ("My Shop", "my_shop"),
        ("MyShop", "my_shop"),
        ("shop!", "shop"),
        ("2shop", "shop"),
        ("_shop", "shop"),
        ("shop.2jobs", "jobs"),
        ("class", "class_jobs"),
        ("shop.import", "import_jobs"),
        ("email", "email_jobs"),
        ("queue", "queue_jobs"),
        ("windlass", "windlass_jobs"),
        ("django", "django_jobs"),
        ("tests", "tests_jobs"),
        ("", "shop, for example"),
        ("日本", "shop, for example"),
        ("../shop", "shop, for example"),
        ("shop2!", "shop2"),
        ("shop/jobs", "shop_jobs"),
        ("-", "shop, for example"),
    ],
)
def test_another_name_is_refused_with_one_that_is_taken(name: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=rf"must .*, got .*; write {re.escape(remedy)}$"):
        check_package_name(name)
    assert "example" in remedy or check_package_name(remedy)


def test_a_name_that_would_break_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="must have at most 30 characters, got 31"):
        check_package_name("a" * 31)


@pytest.mark.parametrize("name", ["invoice", "email", "queue", "send_invoice"])
def test_a_name_of_a_handler_may_be_that_of_a_module_elsewhere(name: str) -> None:
    assert check_handler_name(name) == name


@pytest.mark.parametrize(
    ("name", "remedy"), [("send-invoice", "send_invoice"), ("pass", "pass_jobs"), ("a.b", "a_b")]
)
def test_another_name_of_a_handler_is_refused(name: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=rf"must .*, got .*; write {remedy}$"):
        check_handler_name(name)
