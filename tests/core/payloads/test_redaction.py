"""What is not to be seen is masked, and what else there is stays readable."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.payloads.redaction import MASK, Redaction

USUAL = Redaction()


@pytest.mark.parametrize(
    "name",
    ["password", "Password", "db_password", "dbPassword", "X-Auth-Token", "access_token", "apiKey",
     "API_KEY", "api-key", "authorization", "card", "cardNumber", "credit_card", "client_secret",
     "PGPASSWORD", "cookies", "AWSSecretKey", "jwt", "id_jwt", "session_id", "sessionid",
     "PHPSESSID", "JSESSIONID", "sessionKey", "authtoken", "stripeapikey"],
)  # fmt: skip
def test_the_usual_names_are_hidden_however_they_are_written(name: str) -> None:
    assert USUAL.hides(name)


@pytest.mark.parametrize(
    "name", ["discard", "cardinality", "max_tokens", "key", "author", "to", "session", "tokens"]
)
def test_names_that_only_look_similar_are_not(name: str) -> None:
    assert not USUAL.hides(name)


def test_names_can_be_added_and_taken_out() -> None:
    own = Redaction(["iban2", "inner_.*", "-token"])
    assert own.hides("iban2")
    assert own.hides("inner_thing")
    assert own.hides("password")
    assert not own.hides("token")


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="redaction pattern"):
        Redaction(["(unclosed"])


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("password=abc def", "password=*** def"),
        ("login(user='anna', password='a b')", "login(user='anna', password='***')"),
        ("{'password': 'a b', 'x': 1}", "{'password': '***', 'x': 1}"),
        ('{"token": 5, "a": "b"}', '{"token": "***", "a": "b"}'),
        (r'said "{\"password\": \"a b\"}"', r'said "{\"password\": \"***\"}"'),
        ("GET https://x/y?token=abc&z=1", "GET https://x/y?token=***&z=1"),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("sent Bearer abcdefghij", "sent Bearer ***"),
        ("--api-key=zzz now", "--api-key=*** now"),
        ("PGPASSWORD=abc psql", "PGPASSWORD=*** psql"),
        ("password := 'x'", "password := '***'"),
        ("if password == 'x'", "if password == '***'"),
        ("ALTER ROLE ann PASSWORD 'x y'", "ALTER ROLE ann PASSWORD '***'"),
        ("cookies={'sid': 'abc', 'b': ['c']}, x=1", "cookies=***, x=1"),
        ("{'cookies': {'sid': 'a}b'}, 'x': 1}", "{'cookies': '***', 'x': 1}"),
        ("cookies={'sid': 'cut", "cookies=***"),
        ("got eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJ here", "got *** here"),
        ("at postgresql://ann:p/w@host/db", "at postgresql://ann:***@host/db"),
        ('password="never closed', 'password="***"'),
        ("password='cut off\nin the midst \\", "password='***'"),
        (r'said "{\"password\": \"cut', r'said "{\"password\": \"***\"'),
        ('pwd="""two\n"lines" """, x=1', 'pwd="""***""", x=1'),
        ("password: |\n  two\n  lines\nuser: ann", "password: ***\nuser: ann"),
        ("GET /\nCookie: a=b; c=d\nHost: x", "GET /\nCookie: ***\nHost: x"),
        ('> Authorization: Digest user="a", response="b"', "> Authorization: ***"),
        (f"password='{'x y' * 5000}' z", "password='***' z"),
        (f"redis://ann:{'x' * 5000}@host/0", "redis://ann:***@host/0"),
        ("clone https://ghp_abc@host/x.git", "clone https://***@host/x.git"),
        ("of https://key@host/1, git+https://t@h", "of https://***@host/1, git+https://***@h"),
    ],
)
def test_text_after_a_masked_name_is_masked(text: str, masked: str) -> None:
    assert USUAL.text(text) == masked


@pytest.mark.parametrize(
    "text",
    ["invalid payload for 'charge': field 'card': what it hides does not fit", "http://host:80/path",
     "postgresql://ann@host/db", "git+ssh://git@host/x", "https://host/a@b", "mail x@y.z",
     "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----",
     "12:30:45 a=1 b: c", "no such file: /srv/token/x", ""],
)  # fmt: skip
def test_other_text_stays_as_it_is(text: str) -> None:
    assert USUAL.text(text) == text


@pytest.mark.parametrize("kind", ["", "RSA ", "OPENSSH "])
@pytest.mark.parametrize("written", [str, repr, json.dumps])
def test_a_private_key_is_masked_wherever_it_stands(
    kind: str, written: Callable[[str], str]
) -> None:
    begin, end = f"-----BEGIN {kind}PRIVATE KEY-----", f"-----END {kind}PRIVATE KEY-----"
    text = f"loading {begin}\nMIIEvQIB\nADANBgkq\n{end} failed"
    assert "MII" not in USUAL.text(written(text))
    assert USUAL.text(text) == f"loading {begin}{MASK}{end} failed"
    assert USUAL.text(text.partition("ADA")[0]) == f"loading {begin}{MASK}"


@pytest.mark.parametrize("secret", ["hunter2 two words", "x" * 300])
@pytest.mark.parametrize("place", range(880, 1010, 7))
def test_a_cut_leaves_no_part_of_a_secret(secret: str, place: int) -> None:
    known = Redaction(max_text=1_000).knowing([secret])
    masked = known.text("a " * (place // 2) + secret + " b" * 5_000)
    assert secret[:4] not in masked
    assert masked.endswith("characters left out")


@pytest.mark.parametrize("place", range(940, 1010, 5))
def test_a_cut_leaves_no_part_of_a_password_in_a_url(place: int) -> None:
    text = "a " * (place // 2) + "redis://ann:hunter2@host/0" + " b" * 5_000
    assert "hun" not in Redaction(max_text=1_000).text(text)


def test_a_text_within_the_limit_is_not_cut() -> None:
    assert Redaction(max_text=10).text("0123456789") == "0123456789"


def test_code_stays_readable_and_its_literals_do_not() -> None:
    code = 'token = login(user)\n    connect(password="a b")'
    assert USUAL.text(code, code=True) == 'token = login(user)\n    connect(password="***")'


def test_fields_of_a_value_are_masked_wherever_they_are() -> None:
    value = {
        "to": "anna",
        "password": "a",
        "list": [{"card": {"number": 1}}],
        "sealed": {"$secret": "k1.abc"},
        "url": "redis://:pw@host",
        "token": None,
    }
    assert USUAL.value(value) == {
        "to": "anna",
        "password": MASK,
        "list": [{"card": MASK}],
        "sealed": "Secret(***)",
        "url": "redis://:***@host",
        "token": None,
    }


def test_masking_ends_for_values_that_refer_to_themselves() -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    assert MASK in repr(USUAL.value(value))


@given(st.text(min_size=3), st.text(), st.text())
def test_a_known_text_is_found_however_it_is_written(known: str, before: str, after: str) -> None:
    redaction = Redaction().knowing([known])
    for written in (repr, json.dumps, str):
        masked = redaction.text(f"<{written(known)}>")
        assert MASK in masked
        assert masked.strip("<>'\"") == MASK
    assert MASK in redaction.text(before + known + after)


@given(st.text(alphabet="pasword=:'\"\\ {}[],;@/tken", max_size=300))
def test_no_text_is_too_odd(text: str) -> None:
    assert isinstance(USUAL.text(text), str)
    assert isinstance(USUAL.text(text, code=True), str)
