-- Jobs with their lanes, the workers that hold them, keys, records and news.
-- All times are microseconds since 1970 in UTC, by the clock of the machine that holds the file.

CREATE TABLE jobs (
    seq               INTEGER PRIMARY KEY,           -- the order of arrival
    id                TEXT    NOT NULL UNIQUE,       -- a UUIDv7, made by the producer
    kind              TEXT    NOT NULL,
    queue             TEXT    NOT NULL,
    priority          INTEGER NOT NULL,              -- greater is more urgent
    key               TEXT    NOT NULL,              -- used by fairness and limits; mostly empty
    state             TEXT    NOT NULL,              -- a value of windlass.core.jobs.states
    payload           TEXT    NOT NULL,              -- JSON
    due_at            INTEGER NOT NULL,              -- also the position in the lane
    created_at        INTEGER NOT NULL,
    expires_at        INTEGER,                       -- not run after
    started_at        INTEGER,
    finished_at       INTEGER,
    attempt           INTEGER NOT NULL DEFAULT 0,    -- counts claims
    failures          INTEGER NOT NULL DEFAULT 0,    -- counts exceptions of the handler
    crashes           INTEGER NOT NULL DEFAULT 0,    -- counts lost leases
    max_retries       INTEGER,
    timeout           INTEGER,                       -- microseconds
    unique_key        TEXT,
    headers           TEXT,                          -- JSON
    waiting_for       TEXT,                          -- parked: scheduled, whatever the due time
    worker            TEXT,                          -- the holder, or the worker that finished it
    token             INTEGER,                       -- the fence, drawn anew for every claim
    cancel_requested  INTEGER NOT NULL DEFAULT 0,
    progress          TEXT,                          -- JSON
    result            TEXT,                          -- JSON
    error             TEXT,                          -- JSON: the last error
    reason            TEXT,                          -- why the job is in this state
    history           TEXT    NOT NULL DEFAULT '[]', -- JSON: attempts that did not complete the job
    steps             TEXT    NOT NULL DEFAULT '[]', -- JSON: the step log
    saga              TEXT                           -- ready, undoing or over: windlass.core.jobs.job
) STRICT;

CREATE INDEX jobs_lanes    ON jobs (queue, kind, priority, key, due_at) WHERE state = 'pending';
CREATE INDEX jobs_parked   ON jobs (waiting_for) WHERE waiting_for IS NOT NULL;
CREATE INDEX jobs_held     ON jobs (worker, cancel_requested) WHERE state = 'running';
CREATE INDEX jobs_finished ON jobs (state, finished_at, queue) WHERE finished_at IS NOT NULL;
-- A job that waits for an event becomes pending at its due time at the latest.
CREATE INDEX jobs_due ON jobs (due_at)
WHERE state = 'scheduled' AND (waiting_for IS NULL OR substr(waiting_for, 1, 6) = 'event:');

CREATE TABLE unique_keys (
    key             TEXT    PRIMARY KEY,
    job             TEXT    NOT NULL,
    frees_on_claim  INTEGER NOT NULL,
    until           INTEGER                          -- NULL: the job's state decides
) STRICT, WITHOUT ROWID;

CREATE INDEX unique_keys_job ON unique_keys (job) WHERE until IS NULL;
CREATE INDEX unique_keys_until ON unique_keys (until) WHERE until IS NOT NULL;

CREATE TABLE workers (
    id           TEXT    PRIMARY KEY,
    info         TEXT    NOT NULL,                   -- JSON: given at registration
    pulse        TEXT    NOT NULL,                   -- JSON: given with the last heartbeat
    lease        INTEGER NOT NULL,                   -- microseconds
    started_at   INTEGER NOT NULL,
    last_seen    INTEGER NOT NULL,
    since        INTEGER NOT NULL,                   -- renewed without a gap since then
    lease_until  INTEGER NOT NULL,
    ended        INTEGER NOT NULL DEFAULT 0          -- final: a late renewal changes nothing
) STRICT, WITHOUT ROWID;

CREATE TABLE records (
    name   TEXT PRIMARY KEY,
    value  TEXT NOT NULL,                            -- JSON
    alarm  INTEGER                                   -- when a worker has to look at the record
) STRICT, WITHOUT ROWID;

CREATE INDEX records_alarm ON records (alarm) WHERE alarm IS NOT NULL;

-- == idempotency keys ==============================================================================

CREATE TABLE done_keys (
    kind  TEXT    NOT NULL,
    key   TEXT    NOT NULL,
    job   TEXT    NOT NULL,                          -- the first job that was completed with the key
    at    INTEGER NOT NULL,                          -- when that job was completed
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX done_keys_at ON done_keys (at);

-- Every statement that completes a job records its key in the same transaction. Another job takes
-- the key over only after the first one was pruned. A trigger is run for every job that its statement
-- changes, and a claim ends none: so this looks at the time at which a job ended, which every
-- statement that ends one sets, and first at what most jobs do not have.
CREATE TRIGGER jobs_done AFTER UPDATE OF finished_at ON jobs
WHEN new.headers IS NOT NULL AND new.state = 'completed'
     AND length(json_extract(new.headers, '$."idempotency-key"')) BETWEEN 1 AND 200
BEGIN
    INSERT INTO done_keys (kind, key, job, at)
    VALUES (new.kind, json_extract(new.headers, '$."idempotency-key"'), new.id, new.finished_at)
    ON CONFLICT (kind, key) DO UPDATE SET job = excluded.job, at = excluded.at
        WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE id = done_keys.job);
END;

-- == streams =======================================================================================

CREATE TABLE streams (
    job         TEXT    PRIMARY KEY,
    checked_at  INTEGER NOT NULL                     -- the job had not ended then; or when it ended
) STRICT, WITHOUT ROWID;

CREATE INDEX streams_checked ON streams (checked_at);

CREATE TABLE stream_chunks (
    job      TEXT    NOT NULL,
    attempt  INTEGER NOT NULL,                       -- the attempt that wrote the chunks
    last     INTEGER NOT NULL,                       -- the number of the last of them
    steps    INTEGER NOT NULL,                       -- how far the job had come along its steps
    total    INTEGER NOT NULL,                       -- bytes of the stream up to here
    chunks   TEXT    NOT NULL,                       -- JSON: an array
    PRIMARY KEY (job, attempt, last)
) STRICT;

-- Whatever deletes a job deletes its stream.
CREATE TRIGGER jobs_deleted AFTER DELETE ON jobs
BEGIN
    DELETE FROM streams WHERE job = old.id;
END;

CREATE TRIGGER streams_deleted AFTER DELETE ON streams
BEGIN
    DELETE FROM stream_chunks WHERE job = old.job;
END;

-- == events and flows ==============================================================================

CREATE TABLE news (
    topic  TEXT    NOT NULL,                         -- the record under whose lock it is heard
    id     TEXT    NOT NULL,                         -- of the job that ended, or of the event
    body   TEXT    NOT NULL,                         -- JSON
    at     INTEGER NOT NULL,
    PRIMARY KEY (topic, id)
) STRICT, WITHOUT ROWID;

-- Every statement that ends a job of a flow sends news to the flow in the same transaction. The id
-- of such a job is a UUIDv8 that differs from the flow's id in the last five digits only.
CREATE TRIGGER jobs_ended AFTER UPDATE OF finished_at ON jobs
WHEN substr(new.id, 15, 1) = '8' AND old.state <> new.state
     AND new.state IN ('completed', 'dead', 'cancelled')
BEGIN
    INSERT INTO news (topic, id, body, at)
    VALUES ('flow:' || substr(new.id, 1, 31) || '00000', new.id,
            json_object('state', new.state), new.finished_at)
    ON CONFLICT DO NOTHING;
END;
