CREATE OR REPLACE FUNCTION add(
    new_id uuid, its_kind text, its_queue text, its_priority integer, its_key text,
    its_payload json, its_max_retries integer, its_timeout interval, its_headers json
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
-- Add a new job without a unique key or a due time, as most jobs are. A job whose request was
-- repeated before this one arrived is not added: it may have ended by now. That is checked after
-- the insert, since from then on no other request can add the same id.
BEGIN
    -- The complete check would take a third of the time of this function: most jobs pass a cheaper
    -- one.
    IF num_nonnulls(its_max_retries, its_timeout) > 0
       OR its_priority NOT BETWEEN -1000 AND 1000
       OR octet_length(its_payload::text) > 67108864 OR strpos(its_payload::text, '\u0000') > 0
       OR octet_length(replace(replace(its_payload::text, '[', ''), '{', ''))
          < octet_length(its_payload::text) - 200
       OR octet_length(its_kind || its_queue || its_key) > 200
       OR its_kind || '/' || its_queue || '/' || its_key !~ '^[!-~]+/[!-~]+/[!-~]*$'
       OR octet_length(its_headers::text) > 16384
       OR its_headers::text !~ '^\{("[^"\\]*": ?"[^"\\]*"(, ?)?)*\}$' THEN
        PERFORM refuse(misfit) FROM job_misfit(
            its_kind, its_queue, its_priority, its_key, its_payload, its_max_retries, its_timeout,
            its_headers, false) AS misfit WHERE misfit IS NOT NULL;
    END IF;
    INSERT INTO jobs (id, kind, queue, priority, key, payload, max_retries, timeout, headers)
    VALUES (new_id, its_kind, its_queue, its_priority, its_key, its_payload, its_max_retries,
            its_timeout, its_headers)
    ON CONFLICT DO NOTHING;
    IF FOUND AND EXISTS (SELECT FROM repeated_ids WHERE id = new_id) THEN
        DELETE FROM jobs WHERE id = new_id;
    END IF;
    IF EXISTS (SELECT FROM sleepers) THEN
        PERFORM wake(ARRAY[its_queue], ARRAY[its_kind]);
    END IF;
END $$;
COMMENT ON FUNCTION add(uuid, text, text, integer, text, json, integer, interval, json) IS
    'Adds one new job without a unique key or a due time.';
