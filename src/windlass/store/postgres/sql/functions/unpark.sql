CREATE OR REPLACE FUNCTION unpark(what text[]) RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
-- Unpark the jobs that wait for something; an event makes them due.
DECLARE
    now    timestamptz := clock();
    queues text[];
    kinds  text[];
    freed  bigint;
BEGIN
    WITH freed AS (
        UPDATE jobs SET
            due_at = CASE WHEN starts_with(waiting_for, 'event:') THEN least(due_at, now)
                          ELSE due_at END,
            state = CASE WHEN starts_with(waiting_for, 'event:') OR due_at <= now THEN 'pending'
                         ELSE state END,
            waiting_for = NULL, updated_at = now
        WHERE waiting_for = ANY (what) AND state = 'scheduled'
        RETURNING queue, kind, state
    )
    SELECT array_agg(queue) FILTER (WHERE state = 'pending'),
           array_agg(kind) FILTER (WHERE state = 'pending'), count(*)
    INTO queues, kinds, freed FROM freed;
    IF queues IS NOT NULL AND EXISTS (SELECT FROM sleepers) THEN
        PERFORM wake(queues[:100], kinds[:100]);
    END IF;
    RETURN freed;
END $$;
COMMENT ON FUNCTION unpark(text[]) IS 'Unparks the jobs that wait for something; returns how many.';
