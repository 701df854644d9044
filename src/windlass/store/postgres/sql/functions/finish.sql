CREATE OR REPLACE FUNCTION finish(job jobs, now timestamptz, result json) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
-- Move a job, as it is now, from the live table to the table of its final state.
BEGIN
    DELETE FROM jobs WHERE jobs.id = job.id;
    -- By name: a later schema may add a column to jobs, which is not the last one here.
    IF job.state = 'dead' THEN
        -- A job that was redriven and died again replaces its earlier row.
        DELETE FROM dead_jobs WHERE dead_jobs.id = job.id;
        INSERT INTO dead_jobs (
            seq, id, kind, queue, priority, key, state, payload, due_at, created_at, updated_at,
            expires_at, started_at, attempt, failures, crashes, max_retries, timeout, unique_key,
            headers, waiting_for, worker, token, cancel_requested, progress, error, reason, history,
            steps, saga, finished_at, result, fingerprint)
        VALUES (
            job.seq, job.id, job.kind, job.queue, job.priority, job.key, job.state, job.payload,
            job.due_at, job.created_at, job.updated_at, job.expires_at, job.started_at, job.attempt,
            job.failures, job.crashes, job.max_retries, job.timeout, job.unique_key, job.headers,
            job.waiting_for, job.worker, job.token, job.cancel_requested, job.progress, job.error,
            job.reason, job.history, job.steps, job.saga, now, result,
            fingerprint_of(job.error));
    ELSE
        INSERT INTO finished_jobs (
            seq, id, kind, queue, priority, key, state, payload, due_at, created_at, updated_at,
            expires_at, started_at, attempt, failures, crashes, max_retries, timeout, unique_key,
            headers, waiting_for, worker, token, cancel_requested, progress, error, reason, history,
            steps, saga, finished_at, result, slot)
        VALUES (
            job.seq, job.id, job.kind, job.queue, job.priority, job.key, job.state, job.payload,
            job.due_at, job.created_at, job.updated_at, job.expires_at, job.started_at, job.attempt,
            job.failures, job.crashes, job.max_retries, job.timeout, job.unique_key, job.headers,
            job.waiting_for, job.worker, job.token, job.cancel_requested, job.progress, job.error,
            job.reason, job.history, job.steps, job.saga, now, result, slot_of(now));
        IF job.state = 'completed'
           AND length(job.headers ->> 'idempotency-key') BETWEEN 1 AND 200 THEN
            PERFORM note_done(ARRAY[job.id], now);
        END IF;
    END IF;
    IF is_member(job.id) THEN
        PERFORM tell_flows(ARRAY[job.id], job.state, now);
    END IF;
    IF job.unique_key IS NOT NULL THEN
        DELETE FROM unique_keys WHERE until IS NULL AND unique_keys.job = (finish.job).id;
    END IF;
END $$;
COMMENT ON FUNCTION finish(jobs, timestamptz, json) IS
    'Moves a job from the live table to the table of its final state.';
