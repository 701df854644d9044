CREATE OR REPLACE FUNCTION send_event(name text, payload json DEFAULT 'null') RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
DECLARE
    event uuid := new_id(clock());
BEGIN
    IF coalesce(name, '') = '' OR length(name) > 200 OR name ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'an event has a name of 1 to 200 characters in one line'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'write: send_event(''paid:42'', ''{"by": "card"}'')';
    END IF;
    -- Refused here, since no worker could read it.
    PERFORM payload::jsonb;
    PERFORM send_news(json_build_array(json_build_object(
        'topic', 'event:' || name, 'id', event, 'body', coalesce(payload, 'null'))));
    RETURN event;
END $$;
COMMENT ON FUNCTION send_event(text, json) IS
    'Sends an event to all jobs that wait for it now or later.';
