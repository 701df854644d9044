CREATE OR REPLACE FUNCTION recall(back interval, ago interval, late interval, spans text[])
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on
SET enable_nestloop = on SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
-- Place pending jobs from before a step back of the clock right before those that came since; let
-- jobs that wait for a span come sooner by as much; wake workers whose caches are outdated. A job
-- is from before the step if it is ahead of the clock, or arrived before such a job. Every worker
-- does this when it starts, so jobs are looked for at the end of each lane, where there are none: a
-- scan of a million took longer than the start.
DECLARE
    now          timestamptz := clock();
    since        timestamptz := now - ago;
    retries_from timestamptz := greatest(now, now - ago + back - late);
    queues       text[];
    kinds        text[];
    more_queues  text[];
    more_kinds   text[];
BEGIN
    WITH ahead AS (
        SELECT jobs_ahead.id, row_number() OVER (ORDER BY due_at DESC, seq DESC) AS number
        FROM (SELECT queue, kind, priority, key FROM sweep() WHERE queue IS NOT NULL) AS lanes,
        LATERAL (
            SELECT id, due_at, seq, attempt, age, due_at > now + interval '1 second' AS is_ahead,
                   min(age) FILTER (WHERE due_at > now + interval '1 second' AND attempt = 0)
                       OVER () AS last
            FROM (
                -- The transaction shows the arrival of jobs that were never claimed: sequence
                -- numbers are given out in blocks. A job that is less than a second ahead may have
                -- come since the clock was read.
                SELECT id, due_at, seq, attempt, age(xmin) AS age FROM jobs
                WHERE state = 'pending' AND queue = lanes.queue AND kind = lanes.kind
                  AND priority = lanes.priority AND key = lanes.key AND due_at > since
                -- Else it would be joined in any order, and not lane by lane.
                OFFSET 0) AS placed_since) AS jobs_ahead
        WHERE is_ahead OR (attempt = 0 AND age >= last)
    ), placed AS (
        UPDATE jobs SET due_at = since - ahead.number * interval '1 microsecond'
        FROM ahead
        -- A case, so that jobs are found by their ids alone: not by an index of pending ones.
        WHERE jobs.id = ahead.id AND CASE state WHEN 'pending' THEN jobs.due_at > since END
        RETURNING queue, kind
    )
    SELECT array_agg(queue), array_agg(kind) INTO queues, kinds FROM placed;
    IF back > interval '0' THEN
        WITH sooner AS (
            UPDATE jobs SET due_at = greatest(due_at - back, now)
            WHERE state = 'scheduled' AND waiting_for IS NULL AND due_at > retries_from
              AND reason = ANY (spans)
            RETURNING queue, kind
        )
        SELECT array_agg(queue), array_agg(kind) INTO more_queues, more_kinds FROM sooner;
    END IF;
    queues := coalesce(queues, '{}') || coalesce(more_queues, '{}');
    kinds := coalesce(kinds, '{}') || coalesce(more_kinds, '{}');
    IF cardinality(queues) > 0 THEN
        PERFORM wake(queues, kinds);
    END IF;
    RETURN cardinality(queues);
END $$;
COMMENT ON FUNCTION recall(interval, interval, interval, text[]) IS
    'Corrects the times of jobs that lie ahead of the clock, after it was set back.';
