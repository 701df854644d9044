CREATE OR REPLACE FUNCTION stream_append(groups json) RETURNS TABLE (chunks integer, size bigint)
LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on
SET plan_cache_mode = force_generic_plan SET jit = off
SET lock_timeout = '3s'
AS $$
#variable_conflict use_column
-- Add chunks to the streams of running jobs, each under its fence, which the lock on the job's row
-- keeps valid until the commit. Return how many chunks and bytes each stream has, in the order of
-- the groups; NULL if the fence is lost.
DECLARE
    now  timestamptz := clock();
    new  record;
    kept integer;
BEGIN
    -- A listener may see chunks that a crash of the server undoes; what the job records after them
    -- waits for the disk, and so for them.
    PERFORM set_config('synchronous_commit', 'off', true);
    FOR new IN
        SELECT * FROM json_to_recordset(groups) AS g (
            id uuid, token bigint, attempt integer, "offset" integer, resumed integer,
            steps integer, number integer, size bigint, chunks json)
    LOOP
        chunks := NULL;
        size := NULL;
        PERFORM FROM jobs WHERE id = new.id AND token = new.token FOR NO KEY UPDATE;
        IF FOUND THEN
            INSERT INTO streams (job, checked_at) VALUES (new.id, now)
            ON CONFLICT (job) DO UPDATE SET checked_at = excluded.checked_at WHERE new."offset" = 0;
            IF new."offset" = 0 THEN
                DELETE FROM stream_chunks
                WHERE job = new.id AND attempt < new.attempt AND steps >= new.resumed;
            END IF;
            SELECT max(last) INTO kept FROM stream_chunks
            WHERE job = new.id AND attempt < new.attempt;
            INSERT INTO stream_chunks (job, attempt, last, steps, total, chunks)
            VALUES (new.id, new.attempt, coalesce(kept, 0) + new."offset" + new.number, new.steps,
                    new.size + coalesce((SELECT total FROM stream_chunks WHERE job = new.id
                                         ORDER BY attempt DESC, last DESC LIMIT 1), 0),
                    new.chunks)
            ON CONFLICT (job, attempt, last) DO NOTHING;
            SELECT last, total INTO chunks, size FROM stream_chunks WHERE job = new.id
            ORDER BY attempt DESC, last DESC LIMIT 1;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION stream_append(json) IS
    'Adds chunks to the streams of running jobs, each under its fence; returns their numbers and sizes.';
