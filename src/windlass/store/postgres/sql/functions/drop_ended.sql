CREATE OR REPLACE FUNCTION drop_ended(ids uuid[]) RETURNS void LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off
AS $$
    DELETE FROM jobs WHERE id = ANY (ARRAY(SELECT ended_ids(ids)))
$$;
COMMENT ON FUNCTION drop_ended(uuid[]) IS
    'Removes jobs that were just added, and had ended before.';
