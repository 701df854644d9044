CREATE OR REPLACE FUNCTION promote(most integer) RETURNS integer LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on
SET enable_tidscan = on SET enable_sort = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
-- Make scheduled jobs that are due pending, earliest first.
DECLARE
    now    timestamptz := clock();
    queues text[];
    kinds  text[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    WITH due AS (
        UPDATE jobs SET state = 'pending', waiting_for = NULL, updated_at = now
        WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM jobs
            WHERE state = 'scheduled'
              AND (waiting_for IS NULL OR starts_with(waiting_for, 'event:')) AND due_at <= now
            ORDER BY due_at, seq LIMIT most FOR UPDATE SKIP LOCKED))
        RETURNING queue, kind
    )
    SELECT array_agg(queue), array_agg(kind) INTO queues, kinds FROM due;
    IF queues IS NULL THEN
        RETURN 0;
    END IF;
    IF EXISTS (SELECT FROM sleepers) THEN
        PERFORM wake(queues, kinds);
    END IF;
    RETURN cardinality(queues);
END $$;
COMMENT ON FUNCTION promote(integer) IS 'Makes scheduled jobs that are due pending.';
