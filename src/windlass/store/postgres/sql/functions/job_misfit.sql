-- Without a search path of its own, so that the planner inlines it: a call would take longer than
-- the checks themselves. The functions that call it pin theirs.
CREATE OR REPLACE FUNCTION job_misfit(
    its_kind text, its_queue text, its_priority integer, its_key text, its_payload json,
    its_max_retries integer, its_timeout interval, its_headers json, is_of_flow boolean
) RETURNS text[] LANGUAGE sql STABLE
AS $$
    -- Return what is wrong with a job that a producer sent, and the remedy; NULL if nothing is. The
    -- bounds are Python's.
    SELECT CASE
        WHEN btrim(its_kind) = '' THEN ARRAY[
            'kind must be the name of a handler, got ' || quoted(to_json(its_kind)),
            'name the handler: {"kind": "send_email", ...}']
        WHEN btrim(its_queue) = '' THEN ARRAY[
            'queue must be a name, got ' || quoted(to_json(its_queue)),
            'leave it out for the queue default']
        WHEN its_priority NOT BETWEEN -1000 AND 1000 THEN ARRAY[
            'priority must be a whole number between -1000 and 1000, got ' || its_priority,
            'greater is more urgent; most jobs have 0']
        WHEN length(its_kind) > 200 OR length(its_queue) > 200 OR length(its_key) > 200 THEN ARRAY[
            format('%s must be at most 200 characters, got %s',
                CASE WHEN length(its_kind) > 200 THEN 'kind' WHEN length(its_queue) > 200 THEN 'queue'
                ELSE 'key' END, greatest(length(its_kind), length(its_queue), length(its_key))),
            'shorten it; what is long belongs into the payload']
        WHEN its_kind || coalesce(its_queue, '') || coalesce(its_key, '') ~ '[[:cntrl:]]' THEN ARRAY[
            'kind, queue and key must be without control characters, got '
                || quoted(to_json(ARRAY[its_kind, its_queue, its_key])), 'write them in one line']
        WHEN its_max_retries NOT BETWEEN 0 AND 1000000 THEN ARRAY[
            'max_retries must be a whole number between 0 and 1000000, got ' || its_max_retries,
            'leave it out to have what the kind says']
        WHEN its_timeout NOT BETWEEN interval '1 microsecond' AND interval '36525 days' THEN ARRAY[
            'timeout must be between 1 microsecond and 36525 days, got '
                || quoted(to_json(its_timeout::text)), 'write it like "30 seconds"']
        WHEN its_headers IS NULL THEN text_misfit(its_payload::text, 67108864)
        WHEN json_typeof(its_headers) <> 'object' OR jsonb_path_exists(
            its_headers::jsonb, 'strict $.* ? (@.type() != "string")') THEN ARRAY[
            'headers must be an object of texts, got a JSON ' || json_typeof(its_headers),
            'quote the values: {"request": "42"}']
        -- A job of a flow names its parents in a header, and may have many.
        ELSE coalesce(
            text_misfit(its_payload::text, 67108864),
            text_misfit(its_headers::text, CASE WHEN is_of_flow THEN 67108864 ELSE 16384 END))
    END
$$;
COMMENT ON FUNCTION job_misfit(text, text, integer, text, json, integer, interval, json, boolean) IS
    'Returns what is wrong with a job that a producer sent, and the remedy.';
