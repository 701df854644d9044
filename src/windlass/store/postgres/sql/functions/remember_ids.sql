CREATE OR REPLACE FUNCTION remember_ids(ids uuid[]) RETURNS SETOF uuid LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
-- Record ids that are sent again, and return which of them have live jobs.
BEGIN
    -- In the order of ids, so that two requests with the same jobs cannot deadlock; and without the
    -- recorded ones, so that no request waits for a prune that deletes them.
    INSERT INTO repeated_ids (id)
    SELECT each FROM unnest(ids) AS each
    WHERE NOT EXISTS (SELECT FROM repeated_ids WHERE id = each)
    ORDER BY each
    ON CONFLICT DO NOTHING;
    RETURN QUERY SELECT id FROM jobs WHERE id = ANY (ids);
END $$;
COMMENT ON FUNCTION remember_ids(uuid[]) IS
    'Records ids that are sent again; returns those that have live jobs.';
