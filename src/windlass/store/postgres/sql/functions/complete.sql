CREATE OR REPLACE FUNCTION complete(ids uuid[], tokens bigint[], results json[]) RETURNS uuid[]
LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on
SET enable_nestloop = on SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
SET lock_timeout = '3s'
AS $$
#variable_conflict use_column
-- Record successes, each under its fence. Return NULL if all were recorded, else those that were.
DECLARE
    now       timestamptz := clock();
    today     smallint := slot_of(now);
    completed uuid[];
    keyed     uuid[];
    noted     uuid[];
    members   uuid[];
BEGIN
    WITH gone AS (
        DELETE FROM jobs USING unnest(ids, tokens, results) AS done (id, token, result)
        WHERE jobs.id = done.id AND jobs.token = done.token
        RETURNING jobs.*, done.result
    ), kept AS (
        INSERT INTO finished_jobs (
            seq, id, kind, queue, priority, key, state, payload, due_at, created_at, updated_at,
            expires_at, started_at, attempt, failures, crashes, max_retries, timeout, unique_key,
            headers, worker, cancel_requested, progress, history, steps, saga, finished_at, result,
            slot)
        SELECT seq, id, kind, queue, priority, key, 'completed', payload, due_at, created_at, now,
               expires_at, started_at, attempt, failures, crashes, max_retries, timeout,
               unique_key, headers, worker, cancel_requested, progress, history, steps, saga,
               now, result, today
        FROM gone
        RETURNING id, unique_key, headers
    )
    SELECT array_agg(id), array_agg(id) FILTER (WHERE unique_key IS NOT NULL),
           array_agg(id) FILTER (WHERE length(headers ->> 'idempotency-key') BETWEEN 1 AND 200),
           array_agg(id) FILTER (WHERE is_member(id))
    INTO completed, keyed, noted, members FROM kept;
    IF keyed IS NOT NULL THEN
        DELETE FROM unique_keys WHERE until IS NULL AND job = ANY (keyed);
    END IF;
    IF noted IS NOT NULL THEN
        PERFORM note_done(noted, now);
    END IF;
    IF members IS NOT NULL THEN
        PERFORM tell_flows(members, 'completed', now);
    END IF;
    RETURN CASE WHEN cardinality(completed) = cardinality(ids) THEN NULL
                ELSE coalesce(completed, '{}') END;
END $$;
COMMENT ON FUNCTION complete(uuid[], bigint[], json[]) IS
    'Records successes, each under its fence; returns NULL, or those that were recorded.';
