-- How much is done at once: functions of before, with more care.
-- Served by every release that knows schema 1 or newer: oldest 1.

-- == retention =====================================================================================

CREATE OR REPLACE FUNCTION prune(finished interval, dead interval, workers_kept interval, most integer)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
SET lock_timeout = '100ms'
AS $$
#variable_conflict use_column
-- Delete what is past keeping; return how much that was. Whole days of the finished room are
-- emptied at once. Where the ring cannot tell days apart, or less than a day is kept, rows go.
-- A dead job that could not be undone stays: somebody has yet to see to that.
-- What somebody else has locked is left for the next time: the lock timeout is for whole slots.
-- So is what is above the limit: a prune that its caller gave up on would have deleted nothing.
DECLARE
    now    timestamptz := clock();
    pruned bigint := 0;
    gone   bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    IF finished < interval '1 day' OR finished >= interval '30 days' THEN
        DELETE FROM finished_jobs WHERE id = ANY (ARRAY(
            SELECT id FROM finished_jobs WHERE finished_at < now - finished
            LIMIT most FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS gone = ROW_COUNT;
        pruned := pruned + gone;
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
    -- Last: what is locked for that stays locked until the end.
    IF finished >= interval '1 day' THEN
        FOR slot IN 0 .. 31 LOOP
            pruned := pruned + empty_slot(slot, now, now - finished);
        END LOOP;
    END IF;
    RETURN pruned;
END $$;

CREATE OR REPLACE FUNCTION empty_slot(slot integer, now timestamptz, horizon timestamptz)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off
AS $$
-- Empty a slot of the ring in which nothing is younger than the horizon. A report that reads it
-- is not waited for: the next round tries again.
DECLARE
    room    text := 'finished_jobs_' || to_char(slot, 'FM00');
    today   integer := floor(extract(epoch FROM now) / 86400);
    day     integer := today - (((today - slot) % 32) + 32) % 32;
    found   text := 'SELECT EXISTS (SELECT FROM ' || room || ' %s)';
    kept    boolean;
    emptied bigint;
BEGIN
    -- The last day that belongs to this slot must be over by the horizon, all of it.
    IF to_timestamp((day + 1) * 86400.0) > horizon THEN
        RETURN 0;
    END IF;
    EXECUTE format(found, '') INTO kept;
    IF NOT kept THEN
        RETURN 0;
    END IF;
    -- Nothing young is there, unless the clock was set back since. To see that may take a while for
    -- the first time, so it is not only asked under the lock, where others wait for the answer.
    EXECUTE format(found, 'WHERE finished_at >= $1') INTO kept USING horizon;
    IF kept THEN
        RETURN 0;
    END IF;
    EXECUTE 'LOCK TABLE ' || room || ' IN ACCESS EXCLUSIVE MODE';
    EXECUTE format(found, 'WHERE finished_at >= $1') INTO kept USING horizon;
    IF kept THEN
        RETURN 0;
    END IF;
    SELECT greatest(reltuples, 1)::bigint INTO emptied FROM pg_class WHERE oid = room::regclass;
    EXECUTE 'TRUNCATE ' || room;
    RETURN emptied;
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END $$;
