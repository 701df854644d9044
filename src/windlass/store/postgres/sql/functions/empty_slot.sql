CREATE OR REPLACE FUNCTION empty_slot(slot integer, now timestamptz, horizon timestamptz)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off
AS $$
-- Truncate a slot of the ring in which no row is younger than the horizon. A report that reads the
-- slot is not waited for: the next prune tries again.
DECLARE
    room    text := 'finished_jobs_' || to_char(slot, 'FM00');
    today   integer := floor(extract(epoch FROM now) / 86400);
    day     integer := today - (((today - slot) % 32) + 32) % 32;
    found   text := 'SELECT EXISTS (SELECT FROM ' || room || ' %s)';
    kept    boolean;
    emptied bigint;
BEGIN
    -- The last day of this slot must be completely before the horizon.
    IF to_timestamp((day + 1) * 86400.0) > horizon THEN
        RETURN 0;
    END IF;
    EXECUTE format(found, '') INTO kept;
    IF NOT kept THEN
        RETURN 0;
    END IF;
    -- No row is younger, unless the clock was set back since. Under the lock, where other
    -- statements wait, the check is only repeated, on an index whose pages are cached by then.
    PERFORM brin_summarize_new_values(indexrelid) FROM pg_index
    WHERE indrelid = room::regclass AND indexrelid IN (
        SELECT inhrelid FROM pg_inherits WHERE inhparent = 'finished_jobs_finished'::regclass);
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
COMMENT ON FUNCTION empty_slot(integer, timestamptz, timestamptz) IS
    'Truncates a slot of the ring in which every job is past its retention.';
