CREATE OR REPLACE FUNCTION beat(worker text, said json) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
-- Renew a lease that was not ended; after a gap longer than the lease, `since` starts again.
DECLARE
    now timestamptz := clock();
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE workers SET
        since = CASE WHEN now - last_seen > lease OR now < since THEN now ELSE since END,
        pulse = said, last_seen = now, lease_until = now + lease
    WHERE id = worker AND NOT ended;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION beat(text, json) IS 'Renews a worker''s lease, unless it was ended.';
