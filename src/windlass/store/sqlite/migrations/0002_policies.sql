-- What policies need beside the jobs.

-- == idempotency keys ==============================================================================

CREATE TABLE done_keys (
    kind  TEXT    NOT NULL,
    key   TEXT    NOT NULL,
    job   TEXT    NOT NULL,                          -- the first that was completed with it
    at    INTEGER NOT NULL,                          -- when that was
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX done_keys_at ON done_keys (at);

-- Whatever statement completes a job, its key is done in the same transaction. Another job takes the
-- key over only if the first one is not kept any more.
CREATE TRIGGER jobs_done AFTER UPDATE OF state ON jobs
WHEN new.state = 'completed' AND new.headers IS NOT NULL
     AND length(json_extract(new.headers, '$."idempotency-key"')) BETWEEN 1 AND 200
BEGIN
    INSERT INTO done_keys (kind, key, job, at)
    VALUES (new.kind, json_extract(new.headers, '$."idempotency-key"'), new.id, new.finished_at)
    ON CONFLICT (kind, key) DO UPDATE SET job = excluded.job, at = excluded.at
        WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE id = done_keys.job);
END;
