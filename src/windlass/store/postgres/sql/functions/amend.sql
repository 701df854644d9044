CREATE OR REPLACE FUNCTION amend(
    holder uuid, on_duplicate text, its_kind text, its_payload json, its_key text, its_headers json,
    its_due timestamptz, now timestamptz
) RETURNS TABLE (queue text, kind text) LANGUAGE sql
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
    -- A job that was started before keeps its payload, for which its steps were done. The due time
    -- only moves later: of concurrent duplicates the latest due time wins, in whatever order they
    -- arrive.
    UPDATE jobs SET
        payload = CASE WHEN on_duplicate = 'push' THEN payload ELSE coalesce(its_payload, '{}') END,
        headers = CASE WHEN on_duplicate = 'push' THEN headers ELSE its_headers END,
        key = CASE WHEN on_duplicate = 'push' THEN key ELSE coalesce(its_key, '') END,
        due_at = CASE WHEN on_duplicate <> 'replace' AND its_due > greatest(due_at, now)
                      THEN its_due ELSE due_at END,
        state = CASE WHEN on_duplicate <> 'replace' AND its_due > greatest(due_at, now)
                     THEN 'scheduled' ELSE state END,
        updated_at = now
    WHERE jobs.id = holder AND jobs.kind = its_kind AND attempt = 0
      AND state IN ('scheduled', 'pending')
    RETURNING jobs.queue, jobs.kind
$$;
COMMENT ON FUNCTION amend(uuid, text, text, json, text, json, timestamptz, timestamptz) IS
    'Lets a duplicate change the holder of its unique key, unless the holder was started before.';
