"""Classes of errors: exceptions and classes, or functions that find them, and nothing else."""

from windlass import ErrorClass, Kind, Windlass

app = Windlass("memory://")


class Down(Exception):
    status = 500


def by_status(error: Down) -> ErrorClass | None:
    return ErrorClass.SYSTEM if error.status == 503 else None


def not_a_finder(error: Down) -> bool:
    return True


app.classify(ErrorClass.SYSTEM, Down, TimeoutError)
app.classify(by_status, Down)


@app.job(errors={Down: ErrorClass.PERMANENT, OSError: by_status}, max_retries=2)
async def work() -> None: ...


@app.job(Kind("other", int), errors={Down: ErrorClass.PERMANENT})
async def other(number: int) -> None: ...


app.classify(ErrorClass.SYSTEM)  # E: call-arg
app.classify(Down, ErrorClass.SYSTEM)  # E: arg-type
app.classify(ErrorClass.SYSTEM, int)  # E: arg-type
app.classify("system", Down)  # E: arg-type
app.classify(not_a_finder, Down)  # E: arg-type
