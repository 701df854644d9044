"""An app whose store has a bit of everything: what `windlass` shows is tried on it.

As a program it fills the store, and prints the names of what is in there.
"""

import json

from windlass import Breaker, Windlass

app = Windlass()
app.limit("gpu", concurrency=8)


@app.job
async def fine(number: int) -> int:
    return number


@app.job(max_retries=0, breaker=Breaker("gateway"), limit="gpu")
def broken(number: int) -> None:
    raise ValueError(number)


@app.cron("0 7 * * *")
async def daily() -> None: ...


def main() -> None:
    flow = app.flow("order")
    flow.add(fine.draft(7), after=[flow.add(fine.draft(6))])
    ids = {
        "done": fine.enqueue(1).id,
        "dead": [broken.enqueue(each).id for each in range(4)],
        "later": [fine.using(delay="1h").enqueue(each).id for each in range(3)],
    }
    print(json.dumps({"flow": str(flow.enqueue().id)} | ids, default=str))


if __name__ == "__main__":
    main()
