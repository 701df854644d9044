CREATE OR REPLACE FUNCTION ended_ids(ids uuid[]) RETURNS SETOF uuid LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
-- Return which of some ids belong to jobs that have ended. Every slot of the ring is searched: the
-- time in an id is by its producer's clock, which may be days ahead.
BEGIN
    RETURN QUERY
    SELECT id FROM dead_jobs WHERE id = ANY (ids)
    UNION ALL SELECT id FROM finished_jobs WHERE id = ANY (ids);
END $$;
COMMENT ON FUNCTION ended_ids(uuid[]) IS
    'Returns which of some ids belong to jobs that have ended.';
