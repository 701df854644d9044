CREATE OR REPLACE FUNCTION prune(
    finished interval, dead interval, streams_kept interval, workers_kept interval, most integer)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
SET lock_timeout = '100ms'
AS $$
#variable_conflict use_column
-- Delete what is past its retention; return the number of rows. Whole days of finished jobs are
-- truncated at once. Where the ring cannot tell days apart, or less than a day is kept, rows are
-- deleted. A dead job that could not be undone stays: a person has to handle it. Locked rows are
-- left for the next time (the lock timeout is for whole slots), and so are rows above the limit: a
-- prune that its caller gave up would have deleted nothing.
DECLARE
    now    timestamptz := clock();
    pruned bigint := 0;
    gone   bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    IF finished < interval '1 day' OR finished >= interval '30 days' THEN
        FOR slot IN 0 .. 31 LOOP
            EXIT WHEN pruned >= most;
            pruned := pruned + prune_slot(slot, now - finished, (most - pruned)::integer);
        END LOOP;
    END IF;
    DELETE FROM dead_jobs WHERE id = ANY (ARRAY(
        SELECT id FROM dead_jobs WHERE finished_at < now - dead AND saga IS DISTINCT FROM 'undoing'
        ORDER BY finished_at LIMIT greatest(most - pruned, 0) FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS gone = ROW_COUNT;
    pruned := pruned + gone;
    DELETE FROM unique_keys WHERE key = ANY (ARRAY(
        SELECT key FROM unique_keys WHERE until <= now
        ORDER BY until LIMIT most FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS gone = ROW_COUNT;
    pruned := pruned + gone;
    -- A first request is not expected to be under way for longer than jobs are kept; but one whose
    -- job is live or dead, and kept for longer, would give it a second life nevertheless.
    DELETE FROM repeated_ids WHERE id = ANY (ARRAY(
        SELECT id FROM repeated_ids
        WHERE added_at < now - greatest(finished, interval '1 day')
          AND NOT EXISTS (SELECT FROM jobs WHERE jobs.id = repeated_ids.id)
          AND NOT EXISTS (SELECT FROM dead_jobs WHERE dead_jobs.id = repeated_ids.id)
        ORDER BY added_at LIMIT most FOR UPDATE OF repeated_ids SKIP LOCKED));
    DELETE FROM done_keys WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM done_keys WHERE at < now - finished
        ORDER BY at LIMIT most FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS gone = ROW_COUNT;
    pruned := pruned + gone;
    DELETE FROM workers WHERE id = ANY (ARRAY(
        SELECT id FROM workers WHERE ended AND last_seen < now - workers_kept
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS gone = ROW_COUNT;
    DELETE FROM sleepers WHERE id = ANY (ARRAY(
        SELECT id FROM sleepers WHERE until <= now FOR UPDATE SKIP LOCKED));
    pruned := pruned + gone;
    pruned := pruned + prune_streams(streams_kept, most);
    -- Last, since its locks are held until the end.
    IF finished >= interval '1 day' THEN
        FOR slot IN 0 .. 31 LOOP
            pruned := pruned + empty_slot(slot, now, now - finished);
        END LOOP;
    END IF;
    RETURN pruned;
END $$;
COMMENT ON FUNCTION prune(interval, interval, interval, interval, integer) IS
    'Deletes what is past its retention; returns the number of rows.';
