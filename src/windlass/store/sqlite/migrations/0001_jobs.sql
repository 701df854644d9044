-- The first schema: jobs with their lanes, the workers that hold them, unique keys and records.
-- All times are microseconds since 1970 in UTC, by the clock of the machine that the file is on.

CREATE TABLE jobs (
    seq               INTEGER PRIMARY KEY,           -- the order of arrival
    id                TEXT    NOT NULL UNIQUE,       -- a UUIDv7, made by the producer
    kind              TEXT    NOT NULL,
    queue             TEXT    NOT NULL,
    priority          INTEGER NOT NULL,              -- greater is more urgent
    key               TEXT    NOT NULL,              -- what fairness and limits go by; mostly empty
    state             TEXT    NOT NULL,              -- a word of windlass.core.states
    payload           TEXT    NOT NULL,              -- JSON
    due_at            INTEGER NOT NULL,              -- also the position in the lane
    created_at        INTEGER NOT NULL,
    expires_at        INTEGER,                       -- not run after
    started_at        INTEGER,
    finished_at       INTEGER,
    attempt           INTEGER NOT NULL DEFAULT 0,    -- counts claims
    failures          INTEGER NOT NULL DEFAULT 0,    -- counts what the handler raised
    crashes           INTEGER NOT NULL DEFAULT 0,    -- counts leases lost
    max_retries       INTEGER,
    timeout           INTEGER,                       -- microseconds
    unique_key        TEXT,
    headers           TEXT,                          -- JSON
    waiting_for       TEXT,                          -- parked: scheduled, whatever the due time
    worker            TEXT,                          -- the holder, or who finished it
    token             INTEGER,                       -- the fence, drawn anew for every claim
    cancel_requested  INTEGER NOT NULL DEFAULT 0,
    progress          TEXT,                          -- JSON
    result            TEXT,                          -- JSON
    error             TEXT,                          -- JSON: the last error
    reason            TEXT,                          -- why the job is in this state
    history           TEXT    NOT NULL DEFAULT '[]'  -- JSON: attempts that did not complete the job
) STRICT;

CREATE INDEX jobs_lanes    ON jobs (queue, kind, priority, key, due_at) WHERE state = 'pending';
CREATE INDEX jobs_due      ON jobs (due_at) WHERE state = 'scheduled' AND waiting_for IS NULL;
CREATE INDEX jobs_parked   ON jobs (waiting_for) WHERE waiting_for IS NOT NULL;
CREATE INDEX jobs_held     ON jobs (worker, cancel_requested) WHERE state = 'running';
CREATE INDEX jobs_finished ON jobs (state, finished_at, queue) WHERE finished_at IS NOT NULL;

CREATE TABLE unique_keys (
    key             TEXT    PRIMARY KEY,
    job             TEXT    NOT NULL,
    frees_on_claim  INTEGER NOT NULL,
    until           INTEGER                          -- NULL: as long as the job's state says
) STRICT, WITHOUT ROWID;

CREATE INDEX unique_keys_job ON unique_keys (job) WHERE until IS NULL;
CREATE INDEX unique_keys_until ON unique_keys (until) WHERE until IS NOT NULL;

CREATE TABLE workers (
    id           TEXT    PRIMARY KEY,
    info         TEXT    NOT NULL,                   -- JSON: what the worker said when it registered
    pulse        TEXT    NOT NULL,                   -- JSON: what it said with its last heartbeat
    lease        INTEGER NOT NULL,                   -- microseconds
    started_at   INTEGER NOT NULL,
    last_seen    INTEGER NOT NULL,
    since        INTEGER NOT NULL,                   -- renewed without a gap since then
    lease_until  INTEGER NOT NULL,
    ended        INTEGER NOT NULL DEFAULT 0          -- for good: a late renewal changes nothing
) STRICT, WITHOUT ROWID;

CREATE TABLE records (
    name   TEXT PRIMARY KEY,
    value  TEXT NOT NULL                             -- JSON
) STRICT, WITHOUT ROWID;
