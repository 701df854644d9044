-- The planner settings pin the plan, whatever the statistics, cached plans and flags of the server:
-- it walks the indexes of jobs, in their order.
CREATE OR REPLACE FUNCTION sweep(OUT queue text, OUT kind text, OUT priority integer, OUT key text,
                      OUT due_at timestamptz, OUT seq bigint)
RETURNS SETOF record LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on
SET enable_sort = off SET enable_incremental_sort = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
-- Return the head of every lane that has pending jobs; then a row without a queue with the due time
-- of the next scheduled job, and one with the current time and the microseconds that this took.
BEGIN
    RETURN QUERY
    WITH RECURSIVE heads AS (
        (SELECT queue, kind, priority, key, due_at, seq FROM jobs WHERE state = 'pending'
         ORDER BY queue, kind, priority, key, due_at, seq LIMIT 1)
        UNION ALL
        SELECT next.* FROM heads, LATERAL (
            SELECT queue, kind, priority, key, due_at, seq FROM jobs
            WHERE state = 'pending' AND (queue, kind, priority, key)
                  > (heads.queue, heads.kind, heads.priority, heads.key)
            ORDER BY queue, kind, priority, key, due_at, seq LIMIT 1) AS next
    )
    SELECT * FROM heads;
    RETURN QUERY
    SELECT NULL, NULL, NULL::integer, NULL, due_at, seq FROM jobs
    WHERE state = 'scheduled' AND (waiting_for IS NULL OR starts_with(waiting_for, 'event:'))
    ORDER BY due_at, seq LIMIT 1;
    RETURN QUERY SELECT NULL, NULL, NULL::integer, NULL, clock(),
        (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint;
END $$;
COMMENT ON FUNCTION sweep() IS
    'Returns the oldest job of every lane; then, without a queue, the next due time and the current time.';
