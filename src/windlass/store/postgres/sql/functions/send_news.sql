CREATE OR REPLACE FUNCTION send_news(sent json) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    misfit text[];
BEGIN
    SELECT CASE WHEN length(topic) NOT BETWEEN 7 AND 206 OR topic ~ '[[:cntrl:]]' THEN
                    ARRAY['an event has a name of 1 to 200 characters in one line', 'shorten it']
                ELSE text_misfit(body::text, 67108864) END
    INTO misfit FROM json_to_recordset(sent) AS new (topic text, id uuid, body json)
    WHERE starts_with(topic, 'event:') ORDER BY 1 NULLS LAST LIMIT 1;
    IF misfit IS NOT NULL THEN
        PERFORM refuse(misfit);
    END IF;
    INSERT INTO news (topic, id, body)
    SELECT topic, id, coalesce(body, 'null')
    FROM json_to_recordset(sent) AS new (topic text, id uuid, body json)
    -- Only the store itself reports the ends of jobs.
    WHERE starts_with(topic, 'event:')
    ON CONFLICT DO NOTHING;
    RETURN true;
END $$;
COMMENT ON FUNCTION send_news(json) IS 'Keeps events until a worker handles them.';
