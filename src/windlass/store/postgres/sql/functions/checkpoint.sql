CREATE OR REPLACE FUNCTION checkpoint(entries json) RETURNS uuid[] LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on
SET enable_nestloop = on SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
SET lock_timeout = '3s'
AS $$
#variable_conflict use_column
-- Add to the step logs of running jobs, each under its fence. Return the jobs that were changed. A
-- job is named once: of two entries for one row, an UPDATE would take one.
DECLARE
    added uuid[];
BEGIN
    WITH changed AS (
        UPDATE jobs SET steps = jobs.steps || new.steps, saga = coalesce(new.saga, jobs.saga)
        FROM json_to_recordset(entries) AS new (id uuid, token bigint, steps text[], saga text)
        WHERE jobs.id = new.id AND jobs.token = new.token
        RETURNING jobs.id
    )
    SELECT array_agg(id) INTO added FROM changed;
    RETURN coalesce(added, '{}');
END $$;
COMMENT ON FUNCTION checkpoint(json) IS
    'Adds to the step logs of running jobs, each under its fence; returns the jobs that were changed.';
