CREATE OR REPLACE FUNCTION prune_slot(slot integer, horizon timestamptz, most integer)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET enable_tidscan = on
AS $$
-- Delete rows of a slot of the ring that are older than the horizon. By their places: an id would be
-- looked up in every slot. By the index of their ages, in which pages of younger rows are passed
-- over: a scan of all slots that finds nothing took as long as it takes to read every finished job.
DECLARE
    room text := 'finished_jobs_' || to_char(slot, 'FM00');
    gone bigint;
BEGIN
    EXECUTE format('DELETE FROM %1$s WHERE ctid = ANY (ARRAY('
                   'SELECT ctid FROM %1$s WHERE finished_at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED))',
                   room) USING horizon, most;
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END $$;
COMMENT ON FUNCTION prune_slot(integer, timestamptz, integer) IS
    'Deletes jobs of a slot of the ring that are past their retention.';
