"""Protobuf messages: `enqueue` takes the message that the handler takes."""

from typing import Annotated, reveal_type

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from windlass import Kind, Protobuf, Windlass

app = Windlass("memory://")
REMIND = Kind("remind", Timestamp, key="seconds", protobuf=Protobuf(binary=True))


@app.job
async def wake(at: Timestamp) -> Duration:
    return Duration(seconds=at.seconds)


@app.job
async def wait(span: Annotated[Duration, Protobuf(binary=True)]) -> list[Timestamp]:
    return []


@app.job(REMIND)
async def remind(at: Timestamp) -> None: ...


async def right() -> None:
    woken = await wake.aenqueue(Timestamp())
    reveal_type(woken)  # R: Handle[google.protobuf.duration_pb2.Duration]
    waited = wait.enqueue(span=Duration()).result()
    reveal_type(waited)  # R: list[google.protobuf.timestamp_pb2.Timestamp]
    reveal_type(REMIND)  # R: Kind[google.protobuf.timestamp_pb2.Timestamp]
    await app.aenqueue(REMIND, Timestamp())


async def wrong() -> None:
    await wake.aenqueue(Duration())  # E: arg-type
    await wait.aenqueue(Timestamp())  # E: arg-type
    await remind.aenqueue(Duration())  # E: arg-type
    Protobuf(True)  # E: call-arg
    Kind("x", Timestamp, protobuf=True)  # E: arg-type
