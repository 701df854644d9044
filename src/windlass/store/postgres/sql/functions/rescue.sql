CREATE OR REPLACE FUNCTION rescue(rescuer text, fence bigint, most integer) RETURNS SETOF jobs
LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
-- End leases that ran out, so that a late renewal fails; then, in a new statement, take over
-- running jobs whose worker has no live lease, or is unknown. Each job is returned as its lost
-- holder left it, under the new fence.
DECLARE
    now timestamptz := clock();
    job jobs%ROWTYPE;
BEGIN
    IF NOT EXISTS (SELECT FROM workers WHERE id = rescuer AND NOT ended AND lease_until > now
                   AND last_seen <= now + lease AND now - since >= lease) THEN
        RETURN;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE workers SET ended = true
    WHERE NOT ended AND (lease_until <= now OR last_seen > now + lease);
    FOR job IN
        SELECT * FROM jobs
        WHERE state = 'running' AND worker NOT IN (SELECT id FROM workers WHERE NOT ended)
        ORDER BY seq LIMIT most FOR UPDATE SKIP LOCKED
    LOOP
        UPDATE jobs SET worker = rescuer, token = fence WHERE id = job.id;
        job.token := fence;
        RETURN NEXT job;
    END LOOP;
END $$;
COMMENT ON FUNCTION rescue(text, bigint, integer) IS
    'Ends leases that ran out, and takes over running jobs whose worker has none.';
