-- What a producer may send, and how much is done at once: functions of before, with more care.
-- Served by every release that knows schema 1 or newer: oldest 1.

-- == what a producer may send ======================================================================

CREATE OR REPLACE FUNCTION enqueue(job json) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
DECLARE
    known  text[] := '{kind,payload,queue,priority,key,delay,at,expires_in,expires_at,max_retries,timeout,unique,unique_until,unique_scope,on_duplicate,headers,id}';
    wrong  text;
    hint   text;
    span   record;
    fits   boolean;
    answer uuid;
BEGIN
    IF json_typeof(job) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'a job is a JSON object' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'write: enqueue(''{"kind": "send_email", "payload": {"to": "a@example.org"}}'')';
    END IF;
    SELECT field INTO wrong FROM json_object_keys(job) AS field WHERE field <> ALL (known) LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'a job has no field %', quote_literal(wrong)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'there are: ' || array_to_string(known, ', ');
    END IF;
    SELECT rule.problem, rule.remedy INTO wrong, hint FROM (VALUES
        (coalesce(btrim(job ->> 'kind'), '') = '',
         'a job has a kind', 'name the handler: {"kind": "send_email", ...}'),
        (json_typeof(job -> 'payload') NOT IN ('object', 'null'),
         'the payload is an object', 'give the handler''s arguments by name: {"to": "a@example.org"}'),
        (job ->> 'priority' !~ '^-?([0-9]{1,3}|1000)$',
         'a priority is between -1000 and 1000', 'greater is more urgent; most jobs have 0'),
        (btrim(job ->> 'queue') = '' OR btrim(job ->> 'unique') = '',
         'queue and unique key are not empty', 'leave out what the job does not have'),
        (concat(job ->> 'kind', job ->> 'queue', job ->> 'key', job ->> 'unique') ~ '[[:cntrl:]]',
         'kind, queue, key and unique key have no control characters', 'write them in one line'),
        (greatest(length(job ->> 'kind'), length(job ->> 'queue'), length(job ->> 'key'),
                  length(job ->> 'unique')) > 200,
         'kind, queue, key and unique key have at most 200 characters',
         'shorten them; what is long belongs into the payload'),
        -- By the time in its id a job that has ended is found again, and by the version a member of
        -- a flow is known.
        (job ->> 'id' !~* '^[0-9a-f]{8}-?[0-9a-f]{4}-?7[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$',
         'an id is a UUIDv7', 'leave it out, or make one: no other lets the call be repeated safely'),
        (job ->> 'unique_scope' NOT IN ('kind', 'queue', 'global'),
         'a unique_scope is kind, queue or global', 'leave it out to have one key for each kind'),
        (job ->> 'on_duplicate' NOT IN ('keep', 'replace', 'push', 'supersede'),
         'on_duplicate is keep, replace, push or supersede', 'leave it out to keep what there is'),
        (CASE json_typeof(job -> 'headers') WHEN 'null' THEN false WHEN 'object' THEN EXISTS (
            SELECT FROM json_each(job -> 'headers') WHERE json_typeof(value) <> 'string')
         ELSE true END AND job -> 'headers' IS NOT NULL,
         'headers are an object of texts', 'quote the values: {"request": "42"}'),
        (length(job -> 'headers' ->> 'idempotency-key') NOT BETWEEN 1 AND 200,
         'an idempotency-key has 1 to 200 characters', 'shorten it, or leave it out'),
        (job ->> 'max_retries' !~ '^[0-9]{1,9}$',
         'max_retries is a number, and not negative', 'leave it out to have what the kind says'),
        (num_nonnulls(job ->> 'delay', job ->> 'at') > 1
             OR num_nonnulls(job ->> 'expires_in', job ->> 'expires_at') > 1,
         'a job has either a span (delay, expires_in) or a time (at, expires_at)',
         'leave out one of the two')
    ) AS rule (broken, problem, remedy) WHERE rule.broken LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'invalid_parameter_value', HINT = hint;
    END IF;
    FOR span IN
        SELECT * FROM (VALUES
            ('delay', '0', '36525 days',
             'a delay is between 0 and 36525 days', 'write it like "10 minutes"'),
            ('expires_in', '0', '36525 days',
             'expires_in is between 0 and 36525 days', 'write it like "1 day"'),
            ('timeout', '1 millisecond', '10000 days',
             'a timeout is between a millisecond and 10000 days', 'write it like "30 seconds"'),
            ('unique_until', '1 millisecond', '36525 days',
             'unique_until is claimed, settled or a span of up to 36525 days',
             'write it like "1 day"'),
            -- Nobody could read a job with a time that Python does not have.
            ('at', '0001-01-02 00:00+00', '9999-12-30 00:00+00',
             'at is a time in the years 1 to 9999', 'write it like "2030-01-31 12:00+00"'),
            ('expires_at', '0001-01-02 00:00+00', '9999-12-30 00:00+00',
             'expires_at is a time in the years 1 to 9999', 'write it like "2030-01-31 12:00+00"')
        ) AS rule (field, low, high, problem, remedy)
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
            RAISE EXCEPTION '%', span.problem
                USING ERRCODE = 'invalid_parameter_value', HINT = span.remedy;
        END IF;
    END LOOP;
    -- Refused here, or else one job with a NUL in it would keep everybody from reading job_queue.
    PERFORM job::jsonb;
    SELECT id INTO answer FROM enqueue_many(json_build_array(json_build_object(
        'id', job -> 'id', 'kind', job -> 'kind', 'payload', job -> 'payload',
        'queue', job -> 'queue', 'priority', job -> 'priority', 'key', job -> 'key',
        'delay', job -> 'delay', 'at', job -> 'at', 'expires_in', job -> 'expires_in',
        'expires_at', job -> 'expires_at', 'max_retries', job -> 'max_retries',
        'timeout', job -> 'timeout', 'headers', job -> 'headers',
        -- A key is told apart from those of other scopes as `using(unique=...)` does it, and held as
        -- long as there.
        'unique', CASE coalesce(job ->> 'unique_scope', 'kind')
                  WHEN 'kind' THEN job ->> 'kind'
                  WHEN 'queue' THEN ':queue:' || coalesce(job ->> 'queue', 'default')
                  ELSE ':global' END || ':' || (job ->> 'unique'),
        'unique_until', coalesce(job ->> 'unique_until', CASE
            WHEN job ->> 'on_duplicate' IN ('replace', 'push', 'supersede') THEN 'claimed' END),
        'on_duplicate', job -> 'on_duplicate')));
    RETURN answer;
END $$;

-- == retention =====================================================================================

CREATE OR REPLACE FUNCTION prune(finished interval, dead interval, workers_kept interval, most integer)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
SET lock_timeout = '100ms'
AS $$
#variable_conflict use_column
-- Delete what is past keeping; return how much that was. Whole days of the finished room are
-- emptied at once. Where the ring cannot tell days apart, or less than a day is kept, rows go.
-- A dead job that could not be undone stays: somebody has yet to see to that.
-- What somebody else has locked is left for the next time: the lock timeout is for whole slots.
-- So is what is above the limit: a prune that its caller gave up on would have deleted nothing.
DECLARE
    now    timestamptz := clock();
    pruned bigint := 0;
    gone   bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    IF finished < interval '1 day' OR finished >= interval '30 days' THEN
        DELETE FROM finished_jobs WHERE id = ANY (ARRAY(
            SELECT id FROM finished_jobs WHERE finished_at < now - finished
            LIMIT most FOR UPDATE SKIP LOCKED));
        GET DIAGNOSTICS gone = ROW_COUNT;
        pruned := pruned + gone;
    END IF;
    DELETE FROM dead_jobs WHERE id = ANY (ARRAY(
        SELECT id FROM dead_jobs WHERE finished_at < now - dead AND saga IS DISTINCT FROM 'undoing'
        ORDER BY finished_at LIMIT greatest(most - pruned, 0) FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS gone = ROW_COUNT;
    pruned := pruned + gone;
    DELETE FROM unique_keys WHERE key = ANY (ARRAY(
        SELECT key FROM unique_keys WHERE until <= now
        ORDER BY until LIMIT most FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS gone = ROW_COUNT;
    pruned := pruned + gone;
    DELETE FROM done_keys WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM done_keys WHERE at < now - finished
        ORDER BY at LIMIT most FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS gone = ROW_COUNT;
    pruned := pruned + gone;
    DELETE FROM workers WHERE id = ANY (ARRAY(
        SELECT id FROM workers WHERE ended AND last_seen < now - workers_kept
        FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS gone = ROW_COUNT;
    DELETE FROM sleepers WHERE id = ANY (ARRAY(
        SELECT id FROM sleepers WHERE until <= now FOR UPDATE SKIP LOCKED));
    pruned := pruned + gone;
    -- Last: what is locked for that stays locked until the end.
    IF finished >= interval '1 day' THEN
        FOR slot IN 0 .. 31 LOOP
            pruned := pruned + empty_slot(slot, now, now - finished);
        END LOOP;
    END IF;
    RETURN pruned;
END $$;

CREATE OR REPLACE FUNCTION empty_slot(slot integer, now timestamptz, horizon timestamptz)
RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off
AS $$
-- Empty a slot of the ring in which nothing is younger than the horizon. A report that reads it
-- is not waited for: the next round tries again.
DECLARE
    room    text := 'finished_jobs_' || to_char(slot, 'FM00');
    today   integer := floor(extract(epoch FROM now) / 86400);
    day     integer := today - (((today - slot) % 32) + 32) % 32;
    found   text := 'SELECT EXISTS (SELECT FROM ' || room || ' %s)';
    kept    boolean;
    emptied bigint;
BEGIN
    -- The last day that belongs to this slot must be over by the horizon, all of it.
    IF to_timestamp((day + 1) * 86400.0) > horizon THEN
        RETURN 0;
    END IF;
    EXECUTE format(found, '') INTO kept;
    IF NOT kept THEN
        RETURN 0;
    END IF;
    -- Nothing young is there, unless the clock was set back since. Under the lock, where others wait
    -- for the answer, that is only asked again, and of an index that knows every page by then.
    PERFORM brin_summarize_new_values(indexrelid) FROM pg_index
    WHERE indrelid = room::regclass AND indexrelid IN (
        SELECT inhrelid FROM pg_inherits WHERE inhparent = 'finished_jobs_finished'::regclass);
    EXECUTE format(found, 'WHERE finished_at >= $1') INTO kept USING horizon;
    IF kept THEN
        RETURN 0;
    END IF;
    EXECUTE 'LOCK TABLE ' || room || ' IN ACCESS EXCLUSIVE MODE';
    EXECUTE format(found, 'WHERE finished_at >= $1') INTO kept USING horizon;
    IF kept THEN
        RETURN 0;
    END IF;
    SELECT greatest(reltuples, 1)::bigint INTO emptied FROM pg_class WHERE oid = room::regclass;
    EXECUTE 'TRUNCATE ' || room;
    RETURN emptied;
EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
END $$;
