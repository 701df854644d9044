"""Pydantic models read back as they were written, and hidden values are refused."""

from __future__ import annotations

import json
from datetime import date
from typing import Any, Generic, TypeVar

import msgspec
import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretBytes, SecretStr

from windlass import Context, Windlass
from windlass.core.errors import PayloadInvalid
from windlass.core.payloads import models
from windlass.core.payloads.codec import decode_json, encode_json
from windlass.testing import travel

T = TypeVar("T")


class Aliased(BaseModel):
    postal_code: str = Field(alias="postalCode")
    read_as: int = Field(default=0, validation_alias="readAs")
    written_as: int = Field(default=0, serialization_alias="writtenAs")


class Nested(BaseModel):
    addresses: list[Aliased]


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    width: int

    @pydantic.computed_field
    def doubled(self) -> int:
        return 2 * self.width


class ComputedAndMore(Computed):
    model_config = ConfigDict(extra="allow")


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: date
    pair: tuple[int, str]


class Swapped(BaseModel):
    value: int = Field(alias="amount")
    amount: int = Field(alias="qty")


class Crate(BaseModel):
    items: list[Swapped]
    label: str = Field(default="", validation_alias=pydantic.AliasChoices("tag", "name"))


class Binary(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    data: bytes


class Box(BaseModel, Generic[T]):
    inside: T


class Numbers(pydantic.RootModel[dict[int, set[int]]]):
    pass


ADDRESS = Aliased.model_validate({"postalCode": "1010", "readAs": 2, "written_as": 3})


@pytest.mark.parametrize(
    "model",
    [
        ADDRESS,
        Nested(addresses=[ADDRESS]),
        Computed(width=2),
        ComputedAndMore(width=2, other=3),  # type: ignore[call-arg]
        Strict(day=date(2030, 1, 2), pair=(1, "a")),
        Swapped(amount=1, qty=2),
        Crate.model_validate({"items": [Swapped(amount=1, qty=2)], "tag": "a"}),
        Binary(data=b"\xff\x00"),
        Box[Nested](inside=Nested(addresses=[ADDRESS])),
        Numbers({1: {2, 3}}),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_model_reads_back_as_it_was_written(model: BaseModel) -> None:
    written = encode_json("result", {"model": model})
    read = decode_json(msgspec.json.encode(msgspec.json.decode(written)["model"]), type(model))
    assert read == model
    assert type(read) is type(model)


def test_fields_may_be_given_by_their_aliases() -> None:
    """As producers in other languages write them, by the schema."""
    given = json.dumps({"postalCode": "1010", "readAs": 2, "written_as": 3}).encode()
    assert decode_json(given, Aliased) == ADDRESS


class Login(BaseModel):
    name: str
    password: SecretStr


class Logins(BaseModel):
    by_user: dict[int, list[Login]]
    key: SecretBytes = SecretBytes(b"")


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")
    about: dict[str, Any] = {}


class Initial(pydantic.Secret[str]):
    def _display(self) -> str:
        return self.get_secret_value()[:1] + "***"


class Wrapped(BaseModel):
    password: SecretStr

    @pydantic.model_serializer(mode="wrap", when_used="json")
    def add_version(self, write: Any) -> dict[str, Any]:
        return {"version": 1, **write(self)}


class Revealed(BaseModel):
    password: SecretStr

    @pydantic.field_serializer("password", when_used="json")
    def reveal(self, password: SecretStr) -> str:
        return password.get_secret_value()


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (Login(name="a", password=SecretStr("hunter2")), "password"),
        (
            Logins(by_user={7: [Login(name="a", password=SecretStr("hunter2"))]}),
            "by_user.7.0.password",
        ),
        (Logins(by_user={}, key=SecretBytes(b"x")), "key"),
        (Box[set[SecretStr]](inside={SecretStr("a")}), "inside.0"),
        (Anything(about={"a": {"b": SecretStr("a")}}), "about.a.b"),
        (Anything(more=SecretStr("a")), "more"),  # type: ignore[call-arg]
        (Box[Initial](inside=Initial("hunter2")), "inside"),
        (Wrapped(password=SecretStr("a")), "password"),
    ],
    ids=["field", "nested", "bytes", "set", "any", "extra", "display", "serializer"],
)
def test_a_value_that_pydantic_hides_is_refused(model: BaseModel, field: str) -> None:
    """Prevents: asterisks are stored instead of a password, and the job completes with them."""
    with pytest.raises(PayloadInvalid, match=r"Secret\[str\]") as caught:
        encode_json("payload", {"model": model})
    assert f"field {field!r}" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "model",
    [
        Revealed(password=SecretStr("hunter2")),
        Logins(by_user={}, key=SecretBytes(b"")),
        Anything(about={"stars": "*****"}),
    ],
    ids=["revealed", "empty", "asterisks"],
)
def test_secrets_that_a_model_reveals_or_leaves_empty_are_stored(model: BaseModel) -> None:
    written = encode_json("result", {"model": model})
    read = decode_json(msgspec.json.encode(msgspec.json.decode(written)["model"]), type(model))
    assert read == model


class Populated(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    read_as: int = Field(default=0, validation_alias="readAs")
    written_as: int = Field(default=0, serialization_alias="writtenAs")


def test_older_versions_of_pydantic_lose_nothing_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 2.11 a field with an alias is read by its name only if its model says so."""
    monkeypatch.setattr(models, "_keys_of", lambda _: {})
    model = Populated(read_as=2, written_as=3)
    assert models.from_json(Populated, models.to_json(model)) == model
    with pytest.raises(pydantic.ValidationError, match="postalCode"):
        models.from_json(Aliased, models.to_json(ADDRESS))


class Migrated(BaseModel):
    name: str

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Migrated:
        return super().model_validate({"name": obj["first_name"]}, **options)


def test_a_model_that_reads_older_forms_itself_is_asked() -> None:
    assert decode_json(b'{"first_name": "Ada"}', Migrated) == Migrated(name="Ada")


def test_models_with_aliases_are_arguments_results_and_steps() -> None:
    app = Windlass("memory://")

    @app.job
    async def move(ctx: Context, address: Aliased) -> Aliased:
        return await ctx.step("look up", look_up, address)

    async def look_up(address: Aliased) -> Aliased:
        return address

    with travel(app) as time:
        handle = move.enqueue(ADDRESS)
        time.run_due()
        assert handle.result() == ADDRESS
