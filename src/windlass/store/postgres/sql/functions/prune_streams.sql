CREATE OR REPLACE FUNCTION prune_streams(kept interval, most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
-- Delete the streams of jobs that ended before the retention, or are gone; return how many. A stream
-- whose job lives, or ended later, is looked at again when its time may have come. Its row is locked
-- before the job is looked up: the first chunks of a new attempt wait for that.
DECLARE
    now  timestamptz := clock();
    old  uuid[];
    over uuid[];
BEGIN
    SELECT array_agg(job) INTO old FROM (
        SELECT job FROM streams WHERE checked_at < now - kept
        ORDER BY checked_at LIMIT most FOR UPDATE SKIP LOCKED) AS found;
    IF old IS NULL THEN
        RETURN 0;
    END IF;
    WITH ended AS MATERIALIZED (
        SELECT id, finished_at FROM dead_jobs WHERE id = ANY (old)
        UNION ALL
        SELECT id, finished_at FROM finished_jobs WHERE id = ANY (old)
    )
    UPDATE streams SET checked_at = coalesce(
        (SELECT now FROM jobs WHERE id = streams.job),
        (SELECT max(finished_at) FROM ended WHERE id = streams.job), '-infinity')
    WHERE job = ANY (old);
    WITH gone AS (
        DELETE FROM streams WHERE job = ANY (old) AND checked_at < now - kept RETURNING job
    )
    SELECT array_agg(job) INTO over FROM gone;
    DELETE FROM stream_chunks WHERE job = ANY (over);
    RETURN coalesce(cardinality(over), 0);
END $$;
COMMENT ON FUNCTION prune_streams(interval, integer) IS
    'Deletes the streams of jobs that ended before the retention; returns how many.';
