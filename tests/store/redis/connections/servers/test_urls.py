"""What a Redis URL says, and how one is refused that cannot be right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import ConfigError
from windlass.store.redis.connections.servers.urls import Endpoint, TlsOptions, is_redis, parse


@pytest.mark.parametrize("scheme", ["redis", "valkey", "REDIS"])
def test_a_plain_url_names_a_host_a_port_and_a_database(scheme: str) -> None:
    address = parse(f"{scheme}://cache.example:6380/3")
    assert address.hosts == (Endpoint("cache.example", 6380),)
    assert (address.db, address.tls, address.is_cluster, address.master_name) == (
        3,
        None,
        False,
        None,
    )


def test_a_url_without_host_and_port_means_the_usual_ones() -> None:
    assert parse("redis://").hosts == (Endpoint("localhost", 6379),)
    assert parse("redis://10.0.0.1").hosts == (Endpoint("10.0.0.1", 6379),)
    assert parse("redis://[::1]:7000").hosts == (Endpoint("::1", 7000),)
    assert parse("redis://[::1]").hosts == (Endpoint("::1", 6379),)
    assert parse("redis+sentinel://a,b:26380/shop").hosts == (
        Endpoint("a", 26379),
        Endpoint("b", 26380),
    )


def test_user_and_password_are_unescaped() -> None:
    address = parse("redis://ada:p%40ss%2Fw%3Aord%25@host")
    assert (address.user, address.password) == ("ada", "p@ss/w:ord%")
    assert parse("redis://:secret@host").user is None
    assert parse("redis://:secret@host").password == "secret"
    assert parse("redis://host").password is None


@pytest.mark.parametrize("scheme", ["rediss", "valkeys", "rediss+cluster", "valkeys+sentinel"])
def test_tls_verifies_unless_the_url_says_otherwise(scheme: str) -> None:
    path = "/shop" if "sentinel" in scheme else ""
    assert parse(f"{scheme}://host{path}").tls == TlsOptions(verify=True)
    options = "ssl_ca_certs=/ca.pem&ssl_certfile=/c.pem&ssl_keyfile=/k.pem&ssl_cert_reqs=none"
    assert parse(f"{scheme}://host{path}?{options}").tls == TlsOptions(
        ca_certs="/ca.pem", certfile="/c.pem", keyfile="/k.pem", verify=False
    )


def test_a_socket_is_named_by_its_path() -> None:
    address = parse("unix:///run/redis%20one.sock?db=2")
    assert (address.hosts, address.db) == ((Endpoint("/run/redis one.sock", 0),), 2)
    address = parse("unix://ada:secret@/run/redis.sock")
    assert (address.user, address.password) == ("ada", "secret")


def test_sentinels_are_named_with_their_master() -> None:
    address = parse("redis+sentinel://a:1,b:2/shop/4")
    assert (address.master_name, address.db) == ("shop", 4)


def test_a_cluster_is_named_by_some_of_its_nodes() -> None:
    address = parse("redis+cluster://a:1,b:2?prefix=123456789")
    assert address.is_cluster
    assert len(address.hosts) == 2
    # The example of the specification of Redis Cluster.
    assert (address.namespace, address.slot) == (b"{123456789}:", 0x31C3)


def test_options_of_the_url_replace_the_defaults() -> None:
    address = parse("redis://h")
    assert (address.prefix, address.max_connections, address.wait_replicas) == ("windlass", 20, 0)
    address = parse("redis://h?prefix=shop&max_connections=5&wait_replicas=1&timeout=2.5")
    assert (address.prefix, address.max_connections, address.wait_replicas, address.timeout) == (
        "shop",
        5,
        1,
        2.5,
    )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://host", "must begin with redis://"),
        ("redis://a,b", "must name one host"),
        ("redis://h:0", "port must be from 1 to 65535, got 0"),
        ("redis://h:99999", "port must be from 1 to 65535, got 99999"),
        ("redis://h:six", "port of a redis:// URL must be a number"),
        ("redis://h/six", "database of a Redis URL must be a number"),
        ("redis://h/1?db=2", "db must be given once"),
        ("redis+cluster://h/1", "database of a cluster must be 0, got 1"),
        ("redis+sentinel://h", "must name the master"),
        ("redis+sentinel://h/", "must name the master"),
        ("unix://host/run.sock", "absolute path"),
        ("unix://", "absolute path"),
        ("redis://h?timeout=soon", "timeout must be a number of seconds from 0.1 to 3600"),
        ("redis://h?timeout=nan", "timeout must be a number of seconds"),
        ("redis://h?timeout=0", "timeout must be a number of seconds"),
        ("redis://h?max_connections=0", "max_connections must be a whole number from 1"),
        ("redis://h?max_connections=2.5", "max_connections must be a whole number"),
        ("redis://h?wait_replicas=-1", "wait_replicas must be a whole number from 0"),
        ("redis://h?prefix=a{b", "prefix must be 1 to 100 characters"),
        ("redis://h?prefix=", "prefix must be 1 to 100 characters"),
        ("redis://h?protocol=3", "got protocol; remove it"),
        ("redis://h?prefix=a&prefix=b", "prefix must be given once"),
        ("redis://h?ssl_ca_certs=/ca", "ssl_ca_certs must be used with TLS"),
        ("rediss://h?ssl_cert_reqs=maybe", "ssl_cert_reqs must be required or none, got 'maybe'"),
        ("rediss://h?ssl_keyfile=/k", "ssl_certfile must be given with ssl_keyfile"),
    ],
)
def test_a_wrong_url_is_refused_with_what_to_do(url: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(url)
    assert said in str(refused.value)
    assert ";" in str(refused.value)


_PASSWORDS = st.text(st.sampled_from("abcXYZ0123/@:?#[]% &=,{}+"), min_size=12, max_size=20)


@given(password=_PASSWORDS, scheme=st.sampled_from(["redis", "rediss", "redis+cluster", "unix"]))
def test_no_message_and_no_location_shows_a_password_however_badly_it_is_escaped(
    password: str, scheme: str
) -> None:
    url = f"{scheme}://ada:{password}@host:6379/0?prefix=shop"
    try:
        shown = f"{parse(url)!r} {parse(url).location}"
    except ConfigError as refused:
        shown = str(refused)
    pieces = {password[start : start + 6] for start in range(len(password) - 5)}
    # What is in the URL anyhow is not the password's.
    known = f"ada host:6379 {scheme} prefix=shop %25 %2F %40 %3A %3F %20 redis://host:6379/0"
    assert not [piece for piece in pieces if piece in shown and piece not in known]


@pytest.mark.parametrize(
    "rest", ["abc?secretpart=x", "1/secretpart", "a@secretpart", "%secretpart"]
)
def test_the_rest_of_an_unescaped_password_is_not_taken_for_an_option_or_a_host(rest: str) -> None:
    with pytest.raises(ConfigError, match="must be percent-encoded") as refused:
        parse(f"redis://ada:{rest}@host")
    assert "secretpart" not in str(refused.value)


def test_other_urls_are_not_for_redis() -> None:
    assert is_redis("rediss+sentinel://a,b/shop")
    assert is_redis("unix:///run/redis.sock")
    assert not is_redis("postgresql://host/redis")
