CREATE OR REPLACE FUNCTION rise(sleeper text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    DELETE FROM sleepers WHERE id = sleeper;
END $$;
COMMENT ON FUNCTION rise(text) IS 'Stops notifications of new jobs to a process.';
