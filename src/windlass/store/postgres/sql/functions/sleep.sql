CREATE OR REPLACE FUNCTION sleep(
    sleeper text, its_worker text, its_queues text[], its_others text[], its_kinds text[],
    span interval)
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO sleepers (id, worker, queues, others, kinds, until)
    VALUES (sleeper, its_worker, its_queues, its_others, its_kinds, clock() + span)
    ON CONFLICT (id) DO UPDATE SET
        worker = excluded.worker, queues = excluded.queues, others = excluded.others,
        kinds = excluded.kinds, until = excluded.until;
END $$;
COMMENT ON FUNCTION sleep(text, text, text[], text[], text[], interval) IS
    'Registers a process to be notified of new jobs.';
