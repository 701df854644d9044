-- What policies need of the schema, a section for each.
-- Served by every release that knows schema 1 or newer: oldest 1.

-- == unique keys ===================================================================================

CREATE FUNCTION amend(
    holder uuid, on_duplicate text, its_kind text, its_payload json, its_key text, its_headers json,
    its_due timestamptz, now timestamptz
) RETURNS TABLE (queue text, kind text) LANGUAGE sql
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
    -- One that was started before is kept: what it did, it did for its own payload. The due time goes
    -- back only: duplicates that come at once leave the latest, in whatever order they come.
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
    'Lets a duplicate change the holder of its unique key, unless that was started before.';

CREATE OR REPLACE FUNCTION enqueue_many(new_jobs json)
RETURNS TABLE (id uuid, existing boolean) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
-- Add jobs, and say for each, in order, its id or that of the holder of its unique key. A job that
-- was sent before may have ended meanwhile, and is then in another room; one that its producer knows
-- to be fresh is not looked for there.
DECLARE
    now     timestamptz := clock();
    new     record;
    holder  uuid;
    amended record;
    queues  text[] := '{}';
    kinds   text[] := '{}';
BEGIN
    FOR new IN
        SELECT * FROM json_to_recordset(new_jobs) AS job (
            id uuid, kind text, payload json, queue text, priority integer, key text,
            delay interval, at timestamptz, expires_in interval, expires_at timestamptz,
            max_retries integer, timeout interval, "unique" text, unique_until text,
            on_duplicate text, headers json, fresh boolean)
    LOOP
        id := coalesce(new.id, new_id(now));
        existing := false;
        IF new.id IS NOT NULL AND new.fresh IS NOT TRUE
           AND EXISTS (SELECT FROM known_ids(ARRAY[new.id])) THEN
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF new.unique IS NOT NULL AND NOT EXISTS (SELECT FROM jobs WHERE jobs.id = new.id) THEN
            LOOP
                holder := hold_unique_key(
                    new.unique, id, new.unique_until IS NOT DISTINCT FROM 'claimed',
                    CASE WHEN new.unique_until NOT IN ('claimed', 'settled')
                         THEN now + new.unique_until::interval END);
                EXIT WHEN holder = id OR coalesce(new.on_duplicate, 'keep') = 'keep';
                SELECT queue, kind INTO amended FROM amend(
                    holder, new.on_duplicate, new.kind, new.payload, new.key, new.headers,
                    coalesce(now + new.delay, new.at), now);
                IF FOUND THEN
                    queues := queues || amended.queue;
                    kinds := kinds || amended.kind;
                    EXIT;
                END IF;
                -- Claimed while we waited for it, it may have freed the key: then this is a new job.
                EXIT WHEN EXISTS (
                    SELECT FROM unique_keys
                    WHERE unique_keys.key = new.unique AND job = holder
                      AND (until IS NULL OR until > clock()));
            END LOOP;
            IF holder <> id THEN
                id := holder;
                existing := true;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;
        INSERT INTO jobs (id, kind, queue, priority, key, state, payload, due_at, created_at,
                          updated_at, expires_at, max_retries, timeout, unique_key, headers)
        SELECT id, new.kind, coalesce(new.queue, 'default'), coalesce(new.priority, 0),
               coalesce(new.key, ''), CASE WHEN due > now THEN 'scheduled' ELSE 'pending' END,
               coalesce(new.payload, '{}'), due, now, now,
               coalesce(now + new.expires_in, new.expires_at), new.max_retries, new.timeout,
               new.unique, new.headers
        FROM (SELECT greatest(coalesce(now + new.delay, new.at, now), now) AS due) AS times
        ON CONFLICT DO NOTHING;
        queues := queues || coalesce(new.queue, 'default');
        kinds := kinds || new.kind;
        RETURN NEXT;
    END LOOP;
    IF EXISTS (SELECT FROM sleepers) THEN
        PERFORM wake(queues, kinds);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION enqueue(job json) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
DECLARE
    known  text[] := '{kind,payload,queue,priority,key,delay,at,expires_in,expires_at,max_retries,timeout,unique,unique_until,unique_scope,on_duplicate,headers,id}';
    wrong  text;
    hint   text;
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
        (coalesce(job ->> 'kind', '') = '',
         'a job has a kind', 'name the handler: {"kind": "send_email", ...}'),
        (json_typeof(job -> 'payload') NOT IN ('object', 'null'),
         'the payload is an object', 'give the handler''s arguments by name: {"to": "a@example.org"}'),
        (job ->> 'priority' !~ '^-?([0-9]{1,3}|1000)$',
         'a priority is between -1000 and 1000', 'greater is more urgent; most jobs have 0'),
        (job ->> 'queue' = '' OR job ->> 'unique' = '',
         'queue and unique key are not empty', 'leave out what the job does not have'),
        (concat(job ->> 'kind', job ->> 'queue', job ->> 'unique') ~ '[[:cntrl:]]',
         'kind, queue and unique key have no control characters', 'write them in one line'),
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
        ((job ->> 'timeout')::interval NOT BETWEEN '1 millisecond' AND '10000 days',
         'a timeout is between a millisecond and 10000 days', 'write it like "30 seconds"')
    ) AS rule (broken, problem, remedy) WHERE rule.broken LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'invalid_parameter_value', HINT = hint;
    END IF;
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

-- == idempotency keys ==============================================================================

CREATE TABLE done_keys (
    kind  text        COLLATE "C" NOT NULL,
    key   text        COLLATE "C" NOT NULL,
    job   uuid        NOT NULL,
    at    timestamptz NOT NULL,
    PRIMARY KEY (kind, key)
);
CREATE INDEX done_keys_at ON done_keys (at);

COMMENT ON TABLE  done_keys IS 'Idempotency keys of jobs that were completed.';
COMMENT ON COLUMN done_keys.kind IS 'The kind of the job; each kind has keys of its own.';
COMMENT ON COLUMN done_keys.key IS 'The header idempotency-key of the job.';
COMMENT ON COLUMN done_keys.job IS 'The first job that was completed with the key.';
COMMENT ON COLUMN done_keys.at IS 'When that was.';
COMMENT ON INDEX done_keys_at IS 'Which are past their retention.';

CREATE FUNCTION note_done(ids uuid[], now timestamptz) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
    -- In the order of keys, so that two who note the same ones cannot wait for each other. Another
    -- job takes a key over only if the first one is not kept any more.
    INSERT INTO done_keys AS done (kind, key, job, at)
    SELECT DISTINCT ON (kind, headers ->> 'idempotency-key')
           kind, headers ->> 'idempotency-key', id, now
    FROM finished_jobs WHERE id = ANY (ids) AND slot = slot_of(now)
    ORDER BY kind, headers ->> 'idempotency-key', id
    ON CONFLICT (kind, key) DO UPDATE SET job = excluded.job, at = excluded.at
        WHERE NOT EXISTS (SELECT FROM finished_jobs AS first
                          WHERE first.id = done.job AND first.slot = slot_of(done.at))
$$;
COMMENT ON FUNCTION note_done(uuid[], timestamptz) IS
    'Notes the idempotency keys of jobs that were completed just now.';

DO $$ DECLARE
    -- Who may write unique keys may write these, and who may complete may note: workers that serve
    -- while this schema is made go on without a new grant.
    given record;
BEGIN
    FOR given IN
        SELECT privilege_type || ' ON done_keys' AS what, grantee FROM pg_class, aclexplode(relacl)
        WHERE oid = 'unique_keys'::regclass AND grantee NOT IN (0, relowner)
          AND privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
        UNION ALL
        SELECT 'EXECUTE ON FUNCTION note_done', grantee FROM pg_proc, aclexplode(proacl)
        WHERE oid = 'complete(uuid[], bigint[], json[])'::regprocedure
          AND grantee NOT IN (0, proowner)
    LOOP
        EXECUTE format('GRANT %s TO %s', given.what, given.grantee::regrole);
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION complete(ids uuid[], tokens bigint[], results json[]) RETURNS uuid[]
LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on
SET enable_nestloop = on SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
SET lock_timeout = '3s'
AS $$
#variable_conflict use_column
-- Record successes, each under its fence. Returns NULL if all were recorded, else those that were.
DECLARE
    now       timestamptz := clock();
    today     smallint := slot_of(now);
    completed uuid[];
    keyed     uuid[];
    noted     uuid[];
BEGIN
    WITH gone AS (
        DELETE FROM jobs USING unnest(ids, tokens, results) AS done (id, token, result)
        WHERE jobs.id = done.id AND jobs.token = done.token
        RETURNING jobs.*, done.result
    ), kept AS (
        INSERT INTO finished_jobs (
            seq, id, kind, queue, priority, key, state, payload, due_at, created_at, updated_at,
            expires_at, started_at, attempt, failures, crashes, max_retries, timeout, unique_key,
            headers, worker, cancel_requested, progress, history, finished_at, result, slot)
        SELECT seq, id, kind, queue, priority, key, 'completed', payload, due_at, created_at, now,
               expires_at, started_at, attempt, failures, crashes, max_retries, timeout,
               unique_key, headers, worker, cancel_requested, progress, history, now, result, today
        FROM gone
        RETURNING id, unique_key, headers
    )
    SELECT array_agg(id), array_agg(id) FILTER (WHERE unique_key IS NOT NULL),
           array_agg(id) FILTER (WHERE length(headers ->> 'idempotency-key') BETWEEN 1 AND 200)
    INTO completed, keyed, noted FROM kept;
    IF keyed IS NOT NULL THEN
        DELETE FROM unique_keys WHERE until IS NULL AND job = ANY (keyed);
    END IF;
    IF noted IS NOT NULL THEN
        PERFORM note_done(noted, now);
    END IF;
    RETURN CASE WHEN cardinality(completed) = cardinality(ids) THEN NULL
                ELSE coalesce(completed, '{}') END;
END $$;

CREATE OR REPLACE FUNCTION finish(job jobs, now timestamptz, result json) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
-- Bring a job, as it is now, from the live room into the one for its last state.
BEGIN
    DELETE FROM jobs WHERE jobs.id = job.id;
    -- By name: a later schema may give jobs another column, and then it is not the last one there.
    IF job.state = 'dead' THEN
        -- A second life of an id that died before takes its place.
        DELETE FROM dead_jobs WHERE dead_jobs.id = job.id;
        INSERT INTO dead_jobs (
            seq, id, kind, queue, priority, key, state, payload, due_at, created_at, updated_at,
            expires_at, started_at, attempt, failures, crashes, max_retries, timeout, unique_key,
            headers, waiting_for, worker, token, cancel_requested, progress, error, reason, history,
            finished_at, result)
        VALUES (
            job.seq, job.id, job.kind, job.queue, job.priority, job.key, job.state, job.payload,
            job.due_at, job.created_at, job.updated_at, job.expires_at, job.started_at, job.attempt,
            job.failures, job.crashes, job.max_retries, job.timeout, job.unique_key, job.headers,
            job.waiting_for, job.worker, job.token, job.cancel_requested, job.progress, job.error,
            job.reason, job.history, now, result);
    ELSE
        INSERT INTO finished_jobs (
            seq, id, kind, queue, priority, key, state, payload, due_at, created_at, updated_at,
            expires_at, started_at, attempt, failures, crashes, max_retries, timeout, unique_key,
            headers, waiting_for, worker, token, cancel_requested, progress, error, reason, history,
            finished_at, result, slot)
        VALUES (
            job.seq, job.id, job.kind, job.queue, job.priority, job.key, job.state, job.payload,
            job.due_at, job.created_at, job.updated_at, job.expires_at, job.started_at, job.attempt,
            job.failures, job.crashes, job.max_retries, job.timeout, job.unique_key, job.headers,
            job.waiting_for, job.worker, job.token, job.cancel_requested, job.progress, job.error,
            job.reason, job.history, now, result, slot_of(now));
        IF job.state = 'completed'
           AND length(job.headers ->> 'idempotency-key') BETWEEN 1 AND 200 THEN
            PERFORM note_done(ARRAY[job.id], now);
        END IF;
    END IF;
    IF job.unique_key IS NOT NULL THEN
        DELETE FROM unique_keys WHERE until IS NULL AND unique_keys.job = (finish.job).id;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION prune(finished interval, dead interval, workers_kept interval, most integer)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
SET lock_timeout = '100ms'
AS $$
#variable_conflict use_column
-- Delete what is past keeping; return how much that was. Whole days of the finished room are
-- emptied at once. Where the ring cannot tell days apart, or less than a day is kept, rows go.
-- What somebody else has locked is left for the next time: the lock timeout is for whole slots.
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
        SELECT id FROM dead_jobs WHERE finished_at < now - dead
        ORDER BY finished_at LIMIT greatest(most - pruned, 0) FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS gone = ROW_COUNT;
    pruned := pruned + gone;
    DELETE FROM unique_keys WHERE key = ANY (ARRAY(
        SELECT key FROM unique_keys WHERE until <= now FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS gone = ROW_COUNT;
    pruned := pruned + gone;
    DELETE FROM done_keys WHERE (kind, key) IN (
        SELECT kind, key FROM done_keys WHERE at < now - finished FOR UPDATE SKIP LOCKED);
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

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;
