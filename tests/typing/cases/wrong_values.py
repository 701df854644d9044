"""Wrong options: what a checker can tell before anything runs."""

from datetime import timedelta

from windlass import Backoff, Retry, Windlass

app = Windlass("memory://", concurrency=3, lease="20s")
Retry(max_retries=5, initial="5s", max_delay=timedelta(hours=1))
Windlass("memory://", slotz=3)  # E: call-arg
Windlass("memory://", lease=[])  # E: arg-type
app.worker(slotz=3)  # E: call-arg
app.run_worker(slotz=3)  # E: call-arg
app.configure(slotz=3)  # E: call-arg
app.producer(5)  # E: call-overload
app.control.pause(5)  # E: arg-type
Retry(initial=[])  # E: arg-type
Backoff(base="1s")  # E: arg-type


@app.job(retries=5)  # E: call-overload, untyped-decorator
def unknown_option() -> None: ...


@app.job(retry=5)  # E: call-overload, untyped-decorator
def no_policy() -> None: ...


@app.job(max_retries="5")  # E: call-overload, untyped-decorator
def text_for_a_number() -> None: ...
