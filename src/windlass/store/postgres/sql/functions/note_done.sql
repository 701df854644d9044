CREATE OR REPLACE FUNCTION note_done(ids uuid[], now timestamptz) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
    -- In the order of keys, so that two that record the same ones cannot deadlock. Another job
    -- takes over a key only after the first one was pruned.
    INSERT INTO done_keys AS done (kind, key, job, at)
    SELECT DISTINCT ON (kind, headers ->> 'idempotency-key')
           kind, headers ->> 'idempotency-key', id, now
    FROM finished_jobs WHERE id = ANY (ids) AND slot = slot_of(now)
    ORDER BY kind, headers ->> 'idempotency-key', id
    ON CONFLICT (kind, key) DO UPDATE SET job = excluded.job, at = excluded.at
        WHERE NOT EXISTS (SELECT FROM finished_jobs AS first
                          WHERE first.id = done.job AND first.slot = slot_of(done.at))
$$;
COMMENT ON FUNCTION note_done(uuid[], timestamptz) IS
    'Records the idempotency keys of jobs that were just completed.';
