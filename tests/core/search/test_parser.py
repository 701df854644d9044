"""A search is read as people write it; a mistake is named with its place and the remedy."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.search.errors import SearchError
from windlass.core.search.parser import MAX_CHARACTERS, MAX_STEPS, MAX_TERMS, MAX_VALUES, parse
from windlass.core.search.search import Search
from windlass.core.search.terms import WITH_PATH, Field, Term, Value

TIMES = ("2h", "1h30m", "9:05", "12:30", "23:59:59", "2026-03-01", "2026-03-01T09:00Z")


def term(field: Field, *texts: str, path: tuple[str, ...] = (), negated: bool = False) -> Term:
    values = tuple(Value(text.removesuffix("*"), text.endswith("*")) for text in texts)
    return Term(field=field, values=values, path=path, negated=negated)


READ = {
    "": (),
    "  \t ": (),
    "kind:send_email": (term(Field.KIND, "send_email"),),
    "KIND:Send State:DEAD": (term(Field.KIND, "Send"), term(Field.STATE, "dead")),
    "state:dead,retrying": (term(Field.STATE, "dead", "retrying"),),
    "-queue:bulk": (term(Field.QUEUE, "bulk", negated=True),),
    "kind:send_*": (term(Field.KIND, "send_*"),),
    "-tag:*": (term(Field.TAG, "*", negated=True),),
    'key:"a, b",c': (term(Field.KEY, "a, b", "c"),),
    'key:"a*"': (Term(field=Field.KEY, values=(Value("a*"),)),),
    'key:"a b"*': (Term(field=Field.KEY, values=(Value("a b", True),)),),
    "payload.order.id:42": (term(Field.PAYLOAD, "42", path=("order", "id")),),
    'payload."a.b".-1:""': (term(Field.PAYLOAD, "", path=("a.b", "-1")),),
    "header.trace.id:4bf9*": (term(Field.HEADER, "4bf9*", path=("trace.id",)),),
    "since:12:30": (term(Field.SINCE, "12:30"),),
    "worker:web1:42:ab": (term(Field.WORKER, "web1:42:ab"),),
    '"timed out" timeout': (term(Field.TEXT, "timed out"), term(Field.TEXT, "timeout")),
    r'-"a \"b\" \\ c"': (term(Field.TEXT, 'a "b" \\ c', negated=True),),
    "kind payload state.x": tuple(
        term(Field.TEXT, word) for word in ("kind", "payload", "state.x")
    ),
    "tag:vip tag:eu": (term(Field.TAG, "vip"), term(Field.TAG, "eu")),
    "kind:a -kind:b -kind:c": (
        term(Field.KIND, "a"),
        term(Field.KIND, "b", negated=True),
        term(Field.KIND, "c", negated=True),
    ),
}


@pytest.mark.parametrize("text", READ)
def test_a_search_is_read_as_written(text: str) -> None:
    assert parse(text) == Search(terms=READ[text])


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("kind:", 5, "kind must have a value"),
        ("kind: send", 5, "without a space"),
        ("kind:a, b", 7, "without a space"),
        ('kind:""', 5, "write -kind:*"),
        ("state:dead  knd:a", 12, "did you mean kind:"),
        ("to:ada", 0, "payload.to:"),
        ("http://host", 0, 'quote it: "http://host"'),
        ("KeyError: 'x'", 0, 'quote it: "KeyError:"'),
        (":x", 0, "must be among"),
        ("state:dea", 6, "did you mean dead?"),
        ("state:dead,d*", 11, "state must be among"),
        ("kind:a kind:b", 7, "write kind:A,B"),
        ("since:1h since:2h", 9, "leave one out"),
        ("since:yesterday", 0, "since:2h"),
        ("since:25:00", 0, "since:12:30"),
        ("since:1h,2h", 0, "must be a duration"),
        ("-since:1h", 0, "write until:"),
        ("- x", 0, "must stand before a term"),
        ("kind:a --queue:b", 7, "must stand before a term"),
        ('kind:a "timed out', 7, "a quote must be closed"),
        (r'"a\n"', 2, "must be closed"),
        ('"a"b', 3, "must be followed by a space"),
        ('kind:a"b"', 6, "must be followed by a space"),
        ('foo"bar', 3, "must be followed by a space"),
        ('""', 0, "text must not be empty"),
        ("payload:42", 7, "payload.order.id:42"),
        ("payload.a", 9, "payload.a:42"),
        ("payload..a:1", 8, "empty one"),
        ("payload.card.$secret:x", 13, "cannot be searched"),
        ("kind.a:b", 4, "only payload and header"),
        ("id:zz", 3, "hexadecimal digits"),
        ("flow:01", 5, "at least 4 digits"),
        ("a\x00b", 1, "control characters"),
        ("a\ud800", 1, "control characters"),
        ("x" * (MAX_CHARACTERS + 1), 0, "characters"),
        (" ".join("x" * (MAX_TERMS + 1)), 2 * MAX_TERMS, "terms"),
        ("kind:" + ",".join("x" * (MAX_VALUES + 1)), 5 + 2 * MAX_VALUES, "values"),
        ("payload" + ".x" * (MAX_STEPS + 1) + ":1", 0, "names in a path"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_the_remedy(
    text: str, position: int, message: str
) -> None:
    with pytest.raises(SearchError, match=r"; ") as raised:
        parse(text)
    assert message in str(raised.value)
    assert raised.value.position == position
    assert f"at character {position + 1}" in str(raised.value)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_only_text_is_a_search() -> None:
    with pytest.raises(TypeError, match="search must be text"):
        parse(None)  # type: ignore[arg-type]


LETTERS = st.text(st.sampled_from(list('abKd:.,*-"\\ \n1é$')), max_size=12)
PIECES = st.sampled_from(
    [*(f"{field}:" for field in Field), "payload.", "-", '"', "*", ",", " ", "dead", "2h", "0199ab"]
)


@given(st.one_of(st.text(), st.lists(st.one_of(PIECES, LETTERS)).map("".join)))
def test_any_text_is_read_or_refused_at_a_place_within_it(text: str) -> None:
    try:
        search = parse(text)
    except SearchError as error:
        assert 0 <= error.position <= len(text)  # noqa: PT017 - either end is right.
    else:
        assert parse(str(search)) == search


def _values(field: Field, texts: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[Value, ...]]:
    if field is Field.STATE:
        plain = st.sampled_from(["dead", "running", "retrying"]).map(Value)
    elif field in (Field.SINCE, Field.UNTIL):
        return st.sampled_from(TIMES).map(lambda text: (Value(text),))
    elif field in (Field.ID, Field.FLOW):
        plain = st.sampled_from(["0199abcd", "0199-ab", "f" * 32]).map(Value)
    elif field is Field.TEXT:
        return texts.filter(str.strip).map(lambda text: (Value(text),))
    else:
        given_ = st.builds(Value, texts, st.booleans())
        plain = given_.filter(lambda v: v.text or v.is_prefix or field in WITH_PATH)
    return st.lists(plain, min_size=1, max_size=3).map(tuple)


@st.composite
def _searches(draw: st.DrawFn) -> Search:
    terms = []
    for field in draw(st.lists(st.sampled_from(list(Field)), max_size=5, unique=True)):
        path: tuple[str, ...] = ()
        if field in WITH_PATH:
            steps = st.lists(LETTERS.filter(lambda step: step != "$secret"), min_size=1, max_size=3)
            path = tuple(draw(steps))[: 1 if field is Field.HEADER else 3]
        can_negate = field not in (Field.SINCE, Field.UNTIL)
        terms.append(
            Term(
                field=field,
                values=draw(_values(field, LETTERS)),
                path=path,
                negated=can_negate and draw(st.booleans()),
            )
        )
    return Search(terms=tuple(terms))


@given(_searches())
def test_a_written_search_is_read_as_the_same(search: Search) -> None:
    assert parse(str(search)) == search


@pytest.mark.parametrize(
    ("text", "job_id"),
    [
        ("0199abcd", "0199abcd"),
        ("0199abcd-0000-7000-8000-00000000000f", "0199abcd-0000-7000-8000-00000000000f"),
        ("0199abc", None),
        ("-0199abcd", None),
        ("0199abcd state:dead", None),
        ("nothing-of-it", None),
        ("id:0199abcd", None),
        ("", None),
    ],
)
def test_a_lone_id_is_known_as_one(text: str, job_id: str | None) -> None:
    assert parse(text).job_id == job_id


def test_a_search_says_which_names_inside_it_reads() -> None:
    search = parse("payload.order.id:1 header.trace:x kind:a")
    assert search.inner_names == ("order", "id", "trace")
    assert not search.needs_clock
    assert parse("until:1h").needs_clock
