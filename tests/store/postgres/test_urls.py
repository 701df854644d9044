"""No password in a URL is shown by an error, however it is written; other URLs are taken."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import ConfigError
from windlass.store.postgres.connections.connection import conninfo_of, location_of
from windlass.store.userinfo import check_userinfo

PASSWORDS = st.text(
    st.characters(codec="ascii", categories=(), include_characters="/@%:?#[]& =+,.'\"\\"),
    max_size=6,
)


@pytest.mark.parametrize("password", ["SEC/RET", "SEC@RET", "SEC%RET", "SEC RET", "SEC[RET"])
def test_an_unescaped_password_is_refused_with_its_remedy(password: str) -> None:
    with pytest.raises(ConfigError, match=r"must be percent-encoded, .* '/' as %2F") as caught:
        conninfo_of(f"postgresql://ann:{password}@host/db")
    assert "SEC" not in str(caught.value)
    assert "RET" not in str(caught.value)


@given(PASSWORDS, PASSWORDS, st.sampled_from(["", ":5432", ":5432,b:5433"]))
def test_no_error_and_no_location_shows_any_part_of_a_password(
    before: str, after: str, port: str
) -> None:
    url = f"postgresql://ann:SEC{before}RET{after}@host{port}/db?sslmode=require"
    try:
        shown = location_of(conninfo_of(url), "windlass")
    except ConfigError as error:
        shown = str(error)
    assert "SEC" not in shown
    assert "RET" not in shown


@given(st.text(min_size=1).filter(lambda text: "\0" not in text and text.isprintable()))
def test_an_escaped_password_is_taken_as_it_is(password: str) -> None:
    from psycopg.conninfo import conninfo_to_dict

    conninfo = conninfo_of(f"postgresql://ann:{quote(password, safe='')}@host:5432/db")
    assert conninfo_to_dict(conninfo)["password"] == password


@pytest.mark.parametrize(
    "url",
    ["postgresql://host/db", "postgresql:///db", "postgresql://", "postgresql://ann@host",
     "postgresql://ann:pw@[::1]:5432/db", "postgresql://[2001:db8::1]/db", "postgresql://a:1,b:2/db",
     "postgresql://a,b:2/db", "postgresql:///db?host=/var/run&user=a@b", "postgresql://host:/db",
     "postgresql://ann:pw@host?sslmode=require", "postgres://ann:p%40w@host:5432/db"],
)  # fmt: skip
def test_other_urls_are_taken(url: str) -> None:
    check_userinfo(url, "postgresql")
    assert conninfo_of(url)


def test_the_secret_in_a_parameter_is_not_quoted() -> None:
    with pytest.raises(ConfigError, match=r"percent-encoded token") as caught:
        conninfo_of("postgresql://host/db?password=SEC%RET")
    assert "SEC" not in str(caught.value)


def test_a_port_that_is_no_number_is_refused_unseen() -> None:
    with pytest.raises(ConfigError, match="port of a postgresql:// URL must be a number") as caught:
        conninfo_of("postgresql://ann:SECRET/db")
    assert "SECRET" not in str(caught.value)
