"""Owns the meaning of the fields of a report of `windlass chaos`."""

from __future__ import annotations

from collections.abc import Mapping

from windlass.core.document_fields.field import Field, Fields

SHAPES: Mapping[str, Fields] = {
    "report of chaos": {
        "version": "The version of Windlass.",
        "ok": "Whether no law was broken, and those had evidence that have it in every run.",
        "store": "sqlite, postgres or redis.",
        "command": "The command that throws the same faults again, without secrets.",
        "seed": "The seed that decided the faults.",
        "started_at": "When the workers had started.",
        "seconds": "From the beginning of the storm to the last line of the ledger.",
        "lease": "The lease of the workers, in seconds.",
        "accepted": "Jobs whose enqueue was acknowledged.",
        "refused": "Calls of producers that were refused, or whose fate was unknown to them.",
        "runs": "Runs of handlers that began.",
        "outcomes": "How many jobs of the store are in which state in the end.",
        "verdicts": Field("What was found about each law.", "verdict of chaos"),
        "strikes": Field("The faults that were thrown, in their order.", "fault of chaos"),
        "impossible": "The faults that could not be thrown, by name, and why.",
        "throughput": "Handlers that came to their end, second by second.",
        "memory": Field("The memory of each worker process.", "memory of a worker"),
        "is_cut_short": "Whether Ctrl-C ended the storm before its time.",
        "directory": "Where ledger and logs are, if they were kept; else empty.",
    },
    "verdict of chaos": {
        "law": "The name of the law.",
        "promise": "What it promises.",
        "standing": "kept, broken, not tried (no evidence) or not possible on this store.",
        "checked": "How many pieces of evidence there were.",
        "violations": Field("The first violations.", "violation"),
        "count": "How many violations there are in all.",
        "note": "Figures, or why it was not possible.",
    },
    "violation": {
        "subject": "The job, key or process.",
        "problem": "What ledger and store say about it.",
    },
    "fault of chaos": {
        "number": "Its place in the plan; 0: the machine itself had no CPU time.",
        "fault": "The name of the fault.",
        "began": "Seconds since the storm began.",
        "ended": "The same for its end.",
        "note": "The process that it hit, or other details.",
        "interrupted": "Jobs whose run it cut off, and that ran again.",
        "recovery_p50": "Seconds until half of these ran again.",
        "recovery_max": "Seconds until all of them ran again.",
        "back": "When these ran again, in seconds since the storm began.",
        "first_start": "Seconds from its end until a job started; null: none was waiting.",
        "first_start_at": "When that was, in seconds since the storm began.",
    },
    "memory of a worker": {
        "pid": "The process.",
        "seconds": "For how long it was watched.",
        "first": "Bytes in the first quarter of that time, as the median of what was seen.",
        "last": "The same in the last quarter.",
    },
}
