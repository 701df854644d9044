"""An enqueue of unknown fate: the error has the drafts, and gives handles when it is repeated."""

from typing import reveal_type

from windlass import EnqueueUncertain, Windlass

app = Windlass("memory://")


@app.job
def greet(name: str) -> str:
    return name


def blocking() -> None:
    try:
        greet.enqueue("anna")
    except EnqueueUncertain as error:
        reveal_type(error.drafts)  # R: tuple[Draft[Any], ...]
        reveal_type(error.draft)  # R: Draft[Any]
        reveal_type(error.retry())  # R: list[Handle[Any]]
        app.enqueue_many(error.drafts)


async def awaited() -> None:
    try:
        await greet.aenqueue("anna")
    except EnqueueUncertain as error:
        reveal_type(await error.aretry())  # R: list[Handle[Any]]
        error.retry("again")  # E: call-arg
