CREATE OR REPLACE FUNCTION tell_flows(ids uuid[], state text, now timestamptz) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
    -- Except for its last five digits, the id of such a job is that of the flow.
    INSERT INTO news (topic, id, body, at)
    SELECT 'flow:' || left(id::text, 31) || '00000', id, json_build_object('state', state), now
    FROM unnest(ids) AS ended (id)
    ON CONFLICT DO NOTHING
$$;
COMMENT ON FUNCTION tell_flows(uuid[], text, timestamptz) IS
    'Notifies flows of the ends of their jobs.';
