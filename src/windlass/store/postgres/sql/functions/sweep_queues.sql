-- The planner settings pin the plan, whatever the statistics, cached plans and flags of the server:
-- it walks the indexes of jobs, in their order.
CREATE OR REPLACE FUNCTION sweep_queues(served text[], OUT queue text, OUT kind text,
                      OUT priority integer, OUT key text, OUT due_at timestamptz, OUT seq bigint)
RETURNS SETOF record LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on
SET enable_sort = off SET enable_incremental_sort = off
SET enable_nestloop = on SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
-- Return what sweep() does, but the heads of some queues only: it begins once in each of them, and
-- steps over no lane of another. The due time is that of the next scheduled job of any queue.
BEGIN
    RETURN QUERY
    WITH RECURSIVE heads AS (
        SELECT first.* FROM unnest(served) AS one (queue), LATERAL (
            SELECT queue, kind, priority, key, due_at, seq FROM jobs
            WHERE state = 'pending' AND queue = one.queue
            ORDER BY kind, priority, key, due_at, seq LIMIT 1) AS first
        UNION ALL
        SELECT next.* FROM heads, LATERAL (
            SELECT queue, kind, priority, key, due_at, seq FROM jobs
            WHERE state = 'pending' AND queue = heads.queue
              AND (kind, priority, key) > (heads.kind, heads.priority, heads.key)
            ORDER BY kind, priority, key, due_at, seq LIMIT 1) AS next
    )
    SELECT * FROM heads;
    RETURN QUERY
    SELECT NULL, NULL, NULL::integer, NULL, due_at, seq FROM jobs
    WHERE state = 'scheduled' AND (waiting_for IS NULL OR starts_with(waiting_for, 'event:'))
    ORDER BY due_at, seq LIMIT 1;
    RETURN QUERY SELECT NULL, NULL, NULL::integer, NULL, clock(),
        (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint;
END $$;
COMMENT ON FUNCTION sweep_queues(text[]) IS
    'Returns the oldest job of every lane of some queues; then, without a queue, the next due time and the current time.';
