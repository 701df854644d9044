CREATE OR REPLACE FUNCTION settle(transitions json) RETURNS uuid[] LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on
SET plan_cache_mode = force_generic_plan SET jit = off
SET lock_timeout = '3s'
AS $$
#variable_conflict use_column
-- Move jobs out of running, each under its fence. A job with a cancel request never waits again; if
-- it has steps to undo, it is started once more, to undo them. Return the jobs that were moved.
DECLARE
    now     timestamptz := clock();
    today   smallint := slot_of(now);
    move    record;
    job     jobs%ROWTYPE;
    settled uuid[] := '{}';
    queues  text[] := '{}';
    kinds   text[] := '{}';
BEGIN
    FOR move IN
        SELECT * FROM json_to_recordset(transitions) AS m (
            id uuid, token bigint, state text, due_in interval, due_at timestamptz,
            failures integer, crashes integer, result json, error json, reason text, attempt json,
            waiting_for text, steps text[], saga text)
    LOOP
        SELECT * INTO job FROM jobs WHERE id = move.id AND token = move.token FOR UPDATE;
        CONTINUE WHEN NOT FOUND OR move.state = 'running';
        settled := settled || move.id;
        job.saga := coalesce(move.saga, job.saga);
        job.steps := job.steps || move.steps;
        -- A job that is being undone continues, whatever was requested before.
        job.cancel_requested := job.cancel_requested AND job.saga IS DISTINCT FROM 'undoing';
        IF job.cancel_requested AND move.state IN ('scheduled', 'pending') THEN
            move.state := CASE WHEN job.saga = 'ready' THEN 'pending' ELSE 'cancelled' END;
            move.reason := job.reason;
            IF job.saga = 'ready' THEN
                move.due_in := NULL;
                move.due_at := NULL;
            END IF;
        END IF;
        IF move.due_in IS NOT NULL OR move.due_at IS NOT NULL THEN
            job.due_at := greatest(coalesce(now + move.due_in, move.due_at), now);
        END IF;
        job.failures := job.failures + move.failures;
        job.crashes := job.crashes + move.crashes;
        job.error := CASE WHEN move.state = 'completed' THEN NULL
                          ELSE coalesce(move.error, job.error) END;
        job.token := NULL;
        job.updated_at := now;
        IF NOT (job.cancel_requested AND move.state = 'cancelled') THEN
            job.reason := move.reason;
        END IF;
        IF move.attempt IS NOT NULL THEN
            job.history := lengthen(job.history, move.attempt);
        END IF;
        IF move.state IN ('scheduled', 'pending') THEN
            UPDATE jobs SET state = move.state, due_at = job.due_at, failures = job.failures,
                            crashes = job.crashes, error = job.error, token = NULL, worker = NULL,
                            started_at = NULL, updated_at = now, reason = job.reason,
                            history = job.history, steps = job.steps, saga = job.saga,
                            cancel_requested = job.cancel_requested,
                            waiting_for = CASE WHEN move.state = 'scheduled' THEN move.waiting_for END
            WHERE id = move.id;
            IF move.state = 'pending' THEN
                queues := queues || job.queue;
                kinds := kinds || job.kind;
            END IF;
        ELSE
            job.state := move.state;
            PERFORM finish(job, now, move.result);
        END IF;
    END LOOP;
    IF queues <> '{}' AND EXISTS (SELECT FROM sleepers) THEN
        PERFORM wake(queues, kinds);
    END IF;
    RETURN settled;
END $$;
COMMENT ON FUNCTION settle(json) IS
    'Moves jobs out of running, each under its fence; returns those that were moved.';
