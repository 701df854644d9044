"""`windlass deploys`, and the errors that are new since a deploy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


def test_deploys_are_marked_and_listed(shop: Shell) -> None:
    assert "no deploy is marked" in shop.ok("deploys", "list").err
    said = shop.ok("deploys", "mark", "v1.2.3", "--reason", "the new gateway")
    assert said.out.strip() == "deploy v1.2.3 is marked"
    document = shop.ok("deploys", "mark", "v1.2.4", "--json").json
    assert (document["name"], set(document)) == ("v1.2.4", {"name", "at", "by"})
    listed = shop.ok("deploys", "list", "--json").json["deploys"]
    assert [each["name"] for each in listed] == ["v1.2.4", "v1.2.3"]
    assert "v1.2.3" in shop.ok("deploys", "list").out
    (last, first) = shop.ok("audit", "list", "--json").json["entries"]
    assert (first["action"], first["subject"], first["reason"]) == (
        "mark",
        "deploy:v1.2.3",
        "the new gateway",
    )
    assert last["subject"] == "deploy:v1.2.4"


def test_groups_are_narrowed_to_errors_that_are_new_since_a_deploy(shop: Shell) -> None:
    shop.dead("before")
    shop.ok("deploys", "mark", "v1")
    assert shop.ok("dead", "groups", "--since-deploy", "v1", "--json").json["groups"] == []
    assert "no new error since v1" in shop.ok("dead", "groups", "--since-deploy", "v1").err
    assert shop.ok("dead", "groups", "--json").json["groups"]
    refused = shop("dead", "groups", "--since-deploy", "v2")
    assert refused.code == 1
    assert "there is no deploy 'v2'" in refused.err
