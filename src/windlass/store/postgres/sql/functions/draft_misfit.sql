CREATE OR REPLACE FUNCTION draft_misfit(job json, known text[], is_whole_key boolean) RETURNS text[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
-- Return what is wrong with a job that was sent by SQL, before its fields are cast, and the remedy;
-- NULL if nothing is. A complete unique key includes its scope, and is longer for that.
DECLARE
    misfit text[];
    span   record;
    fits   boolean;
    whole  text := CASE WHEN is_whole_key THEN '[78]' ELSE '7' END;
    most   integer := CASE WHEN is_whole_key THEN 500 ELSE 200 END;
BEGIN
    IF json_typeof(job) IS DISTINCT FROM 'object' THEN
        RETURN ARRAY['a job must be a JSON object, got ' || quoted(job),
            'write: {"kind": "send_email", "payload": {"to": "a@example.org"}}'];
    END IF;
    SELECT ARRAY[format('a job has no field %L', field), 'there are: ' || array_to_string(known, ', ')]
    INTO misfit FROM json_object_keys(job) AS field WHERE field <> ALL (known) LIMIT 1;
    IF misfit IS NOT NULL THEN
        RETURN misfit;
    END IF;
    SELECT ARRAY[format('%s must be %s, got %s', rule.field, rule.condition, CASE
                 WHEN rule.field IN ('payload', 'headers')
                 THEN 'a JSON ' || json_typeof(job -> rule.field)
                 ELSE quoted(job -> rule.field) END), rule.remedy]
    INTO misfit FROM (VALUES
        (coalesce(btrim(job ->> 'kind'), '') = '', 'kind',
         'the name of a handler', 'name the handler: {"kind": "send_email", ...}'),
        (job ->> 'kind' ~ '^windlass($|\.)', 'kind',
         'a name that does not begin with windlass', 'Windlass has such kinds for itself'),
        (json_typeof(job -> 'payload') NOT IN ('object', 'null'), 'payload',
         'an object', 'give the handler''s arguments by name: {"to": "a@example.org"}'),
        (job ->> 'priority' !~ '^-?([0-9]{1,3}|1000)$', 'priority',
         'a whole number between -1000 and 1000', 'greater is more urgent; most jobs have 0'),
        (btrim(job ->> 'queue') = '', 'queue', 'a name', 'leave out what the job does not have'),
        (btrim(job ->> 'unique') = '', 'unique', 'a text', 'leave out what the job does not have'),
        (job ->> 'kind' ~ '[[:cntrl:]]', 'kind',
         'without control characters', 'write it in one line'),
        (job ->> 'queue' ~ '[[:cntrl:]]', 'queue',
         'without control characters', 'write it in one line'),
        (job ->> 'key' ~ '[[:cntrl:]]', 'key',
         'without control characters', 'write it in one line'),
        (job ->> 'unique' ~ '[[:cntrl:]]', 'unique',
         'without control characters', 'write it in one line'),
        (length(job ->> 'kind') > 200, 'kind',
         'at most 200 characters', 'shorten it; what is long belongs into the payload'),
        (length(job ->> 'queue') > 200, 'queue',
         'at most 200 characters', 'shorten it; what is long belongs into the payload'),
        (length(job ->> 'key') > 200, 'key',
         'at most 200 characters', 'shorten it; what is long belongs into the payload'),
        (length(job ->> 'unique') > most, 'unique', format('at most %s characters', most),
         'shorten it; what is long belongs into the payload'),
        -- The time in an id finds a job that has ended, and its version identifies a member of a
        -- flow.
        (job ->> 'id' !~* ('^[0-9a-f]{8}-?[0-9a-f]{4}-?' || whole
             || '[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$'), 'id',
         'a UUIDv7', 'leave it out, or make one: no other lets the call be repeated safely'),
        (job ->> 'unique_scope' NOT IN ('kind', 'queue', 'global'), 'unique_scope',
         'kind, queue or global', 'leave it out to have one key for each kind'),
        (job ->> 'on_duplicate' NOT IN ('keep', 'replace', 'push', 'supersede'), 'on_duplicate',
         'keep, replace, push or supersede', 'leave it out to keep what there is'),
        (CASE json_typeof(job -> 'headers') WHEN 'null' THEN false WHEN 'object' THEN EXISTS (
            SELECT FROM json_each(job -> 'headers') WHERE json_typeof(value) <> 'string')
         ELSE true END AND job -> 'headers' IS NOT NULL, 'headers',
         'an object of texts', 'quote the values: {"request": "42"}'),
        (length(job -> 'headers' ->> 'idempotency-key') NOT BETWEEN 1 AND 200, 'headers',
         'with an idempotency-key of 1 to 200 characters', 'shorten it, or leave it out'),
        (job ->> 'max_retries' !~ '^([0-9]{1,6}|1000000)$', 'max_retries',
         'a whole number between 0 and 1000000', 'leave it out to have what the kind says'),
        (num_nonnulls(job ->> 'delay', job ->> 'at') > 1, 'delay',
         'left out where at is given', 'leave out one of the two'),
        (num_nonnulls(job ->> 'expires_in', job ->> 'expires_at') > 1, 'expires_in',
         'left out where expires_at is given', 'leave out one of the two')
    ) AS rule (broken, field, condition, remedy) WHERE rule.broken LIMIT 1;
    IF misfit IS NOT NULL THEN
        RETURN misfit;
    END IF;
    FOR span IN
        SELECT * FROM (VALUES
            ('delay', '0', '36525 days', 'between 0 and 36525 days', 'write it like "10 minutes"'),
            ('expires_in', '0', '36525 days', 'between 0 and 36525 days', 'write it like "1 day"'),
            ('timeout', '1 microsecond', '36525 days', 'between 1 microsecond and 36525 days',
             'write it like "30 seconds"'),
            ('unique_until', '1 microsecond', '36525 days',
             'claimed, settled or a span of up to 36525 days', 'write it like "1 day"'),
            -- A job with a time beyond Python's calendar could not be read.
            ('at', '0001-01-01 00:00+00', '9999-12-31 23:59:59.999999+00',
             'a time in the years 1 to 9999', 'write it like "2030-01-31 12:00+00"'),
            ('expires_at', '0001-01-01 00:00+00', '9999-12-31 23:59:59.999999+00',
             'a time in the years 1 to 9999', 'write it like "2030-01-31 12:00+00"')
        ) AS rule (field, low, high, condition, remedy)
        WHERE job ->> field IS NOT NULL
          AND NOT (field = 'unique_until' AND job ->> field IN ('claimed', 'settled'))
    LOOP
        BEGIN
            IF span.field IN ('at', 'expires_at') THEN
                fits := (job ->> span.field)::timestamptz
                        BETWEEN span.low::timestamptz AND span.high::timestamptz;
            ELSE
                fits := (job ->> span.field)::interval
                        BETWEEN span.low::interval AND span.high::interval;
            END IF;
        EXCEPTION WHEN data_exception THEN
            fits := false;
        END;
        IF NOT fits THEN
            RETURN ARRAY[format('%s must be %s, got %s', span.field, span.condition,
                                quoted(job -> span.field)), span.remedy];
        END IF;
    END LOOP;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION draft_misfit(json, text[], boolean) IS
    'Returns what is wrong with a job that was sent by SQL, and the remedy.';
