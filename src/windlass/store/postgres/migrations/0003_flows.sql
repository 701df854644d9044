-- What steps, events, flows and schedules need of the schema, a section for each.
-- Served by every release that knows schema 1 or newer: oldest 1.

-- == steps =========================================================================================

ALTER TABLE jobs ADD COLUMN steps text[], ADD COLUMN saga text COLLATE "C";
ALTER TABLE dead_jobs ADD COLUMN steps text[], ADD COLUMN saga text COLLATE "C";
ALTER TABLE finished_jobs ADD COLUMN steps text[], ADD COLUMN saga text COLLATE "C";

COMMENT ON COLUMN jobs.steps IS 'The log of its steps, each entry as JSON.';
COMMENT ON COLUMN jobs.saga IS
    'ready: it has something to undo; undoing: that is being done; over: all is undone.';
COMMENT ON COLUMN dead_jobs.steps IS 'The log of its steps, each entry as JSON.';
COMMENT ON COLUMN dead_jobs.saga IS
    'ready: it has something to undo; undoing: that is being done; over: all is undone.';
COMMENT ON COLUMN finished_jobs.steps IS 'The log of its steps, each entry as JSON.';
COMMENT ON COLUMN finished_jobs.saga IS
    'ready: it has something to undo; undoing: that is being done; over: all is undone.';

CREATE FUNCTION checkpoint(entries json) RETURNS uuid[] LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on
SET enable_nestloop = on SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
SET lock_timeout = '3s'
AS $$
#variable_conflict use_column
-- Add to the logs of running jobs, each under its fence. Returns those that were added to. A job is
-- named once: of two entries for one row, an UPDATE would take one.
DECLARE
    added uuid[];
BEGIN
    WITH changed AS (
        UPDATE jobs SET steps = jobs.steps || new.steps, saga = coalesce(new.saga, jobs.saga)
        FROM json_to_recordset(entries) AS new (id uuid, token bigint, steps text[], saga text)
        WHERE jobs.id = new.id AND jobs.token = new.token
        RETURNING jobs.id
    )
    SELECT array_agg(id) INTO added FROM changed;
    RETURN coalesce(added, '{}');
END $$;
COMMENT ON FUNCTION checkpoint(json) IS
    'Adds to the logs of running jobs'' steps, each under its fence; returns those added to.';

-- == events and flows ==============================================================================

CREATE TABLE news (
    topic  text        COLLATE "C" NOT NULL,
    id     uuid        NOT NULL,
    body   json        NOT NULL,
    at     timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (topic, id)
);
COMMENT ON TABLE  news IS 'What happened and nobody has heard of yet: ends of jobs, and events.';
COMMENT ON COLUMN news.topic IS 'The record under whose lock it is heard.';
COMMENT ON COLUMN news.id IS 'The id of the job that ended, or of the event.';
COMMENT ON COLUMN news.body IS 'What the event brings along, or in which state the job ended.';
COMMENT ON COLUMN news.at IS 'When that was.';

CREATE FUNCTION is_member(job uuid) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS 'SELECT get_byte(uuid_send(job), 6) >> 4 = 8';
COMMENT ON FUNCTION is_member(uuid) IS
    'Says whether a job belongs to a flow, by its id: then it is a UUIDv8.';

CREATE FUNCTION tell_flows(ids uuid[], state text, now timestamptz) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
    -- But for its last five digits, the id of such a job is that of the flow.
    INSERT INTO news (topic, id, body, at)
    SELECT 'flow:' || left(id::text, 31) || '00000', id, json_build_object('state', state), now
    FROM unnest(ids) AS ended (id)
    ON CONFLICT DO NOTHING
$$;
COMMENT ON FUNCTION tell_flows(uuid[], text, timestamptz) IS
    'Tells flows of jobs of theirs that ended.';

CREATE FUNCTION send_news(sent json) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO news (topic, id, body)
    SELECT topic, id, coalesce(body, 'null')
    FROM json_to_recordset(sent) AS new (topic text, id uuid, body json)
    -- Ends of jobs are told of by the store alone.
    WHERE starts_with(topic, 'event:')
    ON CONFLICT DO NOTHING;
    RETURN true;
END $$;
COMMENT ON FUNCTION send_news(json) IS 'Keeps events until they are heard.';

CREATE FUNCTION send_event(name text, payload json DEFAULT 'null') RETURNS uuid
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
    -- Refused here, or else nobody could read it.
    PERFORM payload::jsonb;
    PERFORM send_news(json_build_array(json_build_object(
        'topic', 'event:' || name, 'id', event, 'body', coalesce(payload, 'null'))));
    RETURN event;
END $$;
COMMENT ON FUNCTION send_event(text, json) IS
    'Sends an event to all jobs that wait for it, or will.';

-- Who waits for an event waits until the due time at the longest.
DROP INDEX jobs_due;
CREATE INDEX jobs_due ON jobs (due_at, seq)
WHERE state = 'scheduled' AND (waiting_for IS NULL OR starts_with(waiting_for, 'event:'));
COMMENT ON INDEX jobs_due IS 'Which scheduled jobs are due, or have waited for an event for long enough.';
COMMENT ON COLUMN jobs.waiting_for IS
    'Parked: it waits for this, whatever its due time; for an event, until then at the longest.';

CREATE FUNCTION unpark(what text[]) RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
-- Let those who wait for something wait no longer; an event makes them due.
DECLARE
    now    timestamptz := clock();
    queues text[];
    kinds  text[];
    freed  bigint;
BEGIN
    WITH freed AS (
        UPDATE jobs SET
            due_at = CASE WHEN starts_with(waiting_for, 'event:') THEN least(due_at, now)
                          ELSE due_at END,
            state = CASE WHEN starts_with(waiting_for, 'event:') OR due_at <= now THEN 'pending'
                         ELSE state END,
            waiting_for = NULL, updated_at = now
        WHERE waiting_for = ANY (what) AND state = 'scheduled'
        RETURNING queue, kind, state
    )
    SELECT array_agg(queue) FILTER (WHERE state = 'pending'),
           array_agg(kind) FILTER (WHERE state = 'pending'), count(*)
    INTO queues, kinds, freed FROM freed;
    IF queues IS NOT NULL AND EXISTS (SELECT FROM sleepers) THEN
        PERFORM wake(queues[:100], kinds[:100]);
    END IF;
    RETURN freed;
END $$;
COMMENT ON FUNCTION unpark(text[]) IS 'Frees the jobs that wait for something; returns how many.';

-- == alarms ========================================================================================

ALTER TABLE records ADD COLUMN alarm timestamptz;
CREATE INDEX records_alarm ON records (alarm) WHERE alarm IS NOT NULL;
COMMENT ON COLUMN records.alarm IS 'When somebody is to look at it.';
COMMENT ON INDEX records_alarm IS 'Which records are to be looked at.';

-- == grants ========================================================================================

DO $$ DECLARE
    -- Who may write records may write news, who may settle may do what that does now, and who may
    -- enqueue may send events: whoever works while this schema is made goes on without a new grant.
    given record;
BEGIN
    FOR given IN
        SELECT privilege_type || ' ON news' AS what, grantee FROM pg_class, aclexplode(relacl)
        WHERE oid = 'records'::regclass AND grantee NOT IN (0, relowner)
          AND privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
        UNION ALL
        SELECT 'EXECUTE ON FUNCTION checkpoint, is_member, tell_flows, unpark', grantee
        FROM pg_proc, aclexplode(proacl)
        WHERE oid = 'settle(json)'::regprocedure AND grantee NOT IN (0, proowner)
        UNION ALL
        SELECT 'EXECUTE ON FUNCTION send_event, send_news', grantee
        FROM pg_proc, aclexplode(proacl)
        WHERE oid = 'enqueue_many(json)'::regprocedure AND grantee NOT IN (0, proowner)
    LOOP
        EXECUTE format('GRANT %s TO %s', given.what, given.grantee::regrole);
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION checkpoint, is_member, tell_flows, unpark, send_event, send_news FROM PUBLIC;

-- == what the functions of before do about all that ================================================

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
            on_duplicate text, headers json, waiting_for text, fresh boolean)
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
                          updated_at, expires_at, max_retries, timeout, unique_key, headers,
                          waiting_for)
        SELECT id, new.kind, coalesce(new.queue, 'default'), coalesce(new.priority, 0),
               coalesce(new.key, ''), CASE WHEN due > now OR new.waiting_for IS NOT NULL THEN 'scheduled'
                    ELSE 'pending' END,
               coalesce(new.payload, '{}'), due, now, now,
               coalesce(now + new.expires_in, new.expires_at), new.max_retries, new.timeout,
               new.unique, new.headers, new.waiting_for
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

CREATE OR REPLACE FUNCTION sweep(OUT queue text, OUT kind text, OUT priority integer, OUT key text,
                      OUT due_at timestamptz, OUT seq bigint)
RETURNS SETOF record LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on
SET enable_sort = off SET enable_incremental_sort = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
-- The head of every lane that has pending jobs; then a row without a queue that says when the next
-- scheduled job is due, and one that says what time it is, and how many microseconds this took.
BEGIN
    RETURN QUERY
    WITH RECURSIVE heads AS (
        (SELECT queue, kind, priority, key, due_at, seq FROM jobs WHERE state = 'pending'
         ORDER BY queue, kind, priority, key, due_at, seq LIMIT 1)
        UNION ALL
        SELECT next.* FROM heads, LATERAL (
            SELECT queue, kind, priority, key, due_at, seq FROM jobs
            WHERE state = 'pending' AND (queue, kind, priority, key)
                  > (heads.queue, heads.kind, heads.priority, heads.key)
            ORDER BY queue, kind, priority, key, due_at, seq LIMIT 1) AS next
    )
    SELECT * FROM heads;
    RETURN QUERY
    SELECT NULL, NULL, NULL::integer, NULL, due_at, seq FROM jobs
    WHERE state = 'scheduled' AND (waiting_for IS NULL OR starts_with(waiting_for, 'event:'))
    ORDER BY due_at, seq LIMIT 1;
    RETURN QUERY SELECT NULL, NULL, NULL::integer, NULL, clock(),
        (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint;
END $$;

CREATE OR REPLACE FUNCTION claim(
    holder text, fence bigint, queues text[], kinds text[], priorities integer[], keys text[],
    counts integer[], floors timestamptz[], floor_seqs bigint[], draws integer[],
    budgets integer[], lazily boolean
) RETURNS TABLE (
    asked integer, id uuid, payload json, due_at timestamptz, created_at timestamptz,
    started_at timestamptz, attempt integer, failures integer, crashes integer, rest json,
    seq bigint
) LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on
SET enable_tidscan = on SET enable_sort = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
-- Start the oldest jobs of lanes under a live lease, ask by ask, each from its floor on, and never
-- more than the budgets hold that it draws on (draws has a bit for each). A claim that is lost
-- only runs again, so it need not wait for the disk; in a transaction that acknowledges, it does.
-- Returns, for each job, which ask it is for and what is not known from that; what few jobs have
-- comes as JSON, or not at all. A negative count asks a lane whose jobs must not overtake each
-- other for its oldest job, and for none if somebody has that locked.
DECLARE
    now     timestamptz := clock();
    room    integer;
    taken   integer;
BEGIN
    IF NOT EXISTS (SELECT FROM workers WHERE id = holder AND NOT ended AND lease_until > now
                   AND last_seen <= now + lease) THEN
        RETURN;
    END IF;
    IF lazily THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    FOR ask IN 1 .. cardinality(queues) LOOP
        room := CASE WHEN counts[ask] < 0 THEN 1 ELSE counts[ask] END;
        FOR budget IN 1 .. cardinality(budgets) LOOP
            IF draws[ask] & (1 << (budget - 1)) <> 0 THEN
                room := least(room, budgets[budget]);
            END IF;
        END LOOP;
        CONTINUE WHEN room <= 0;
        RETURN QUERY
        UPDATE jobs SET state = 'running', attempt = attempt + 1, worker = holder, token = fence,
                        started_at = now, updated_at = now, progress = NULL
        WHERE ctid = ANY (CASE WHEN counts[ask] < 0 THEN ARRAY(
            SELECT ctid FROM jobs WHERE state = 'pending' AND ctid = (
                SELECT ctid FROM jobs
                WHERE state = 'pending' AND queue = queues[ask] AND kind = kinds[ask]
                  AND priority = priorities[ask] AND key = keys[ask]
                ORDER BY due_at, seq LIMIT 1)
            FOR UPDATE SKIP LOCKED)
        ELSE ARRAY(
            SELECT ctid FROM jobs
            WHERE state = 'pending' AND queue = queues[ask] AND kind = kinds[ask]
              AND priority = priorities[ask] AND key = keys[ask]
              AND (due_at, seq) >= (floors[ask], floor_seqs[ask])
            ORDER BY due_at, seq LIMIT room FOR UPDATE SKIP LOCKED)
        END)
        RETURNING ask, id, payload, due_at, created_at, now, attempt, failures, crashes,
            CASE WHEN cancel_requested OR num_nonnulls(
                expires_at, max_retries, timeout, unique_key, headers, error, reason, history, steps) > 0
            THEN json_build_object(
                'expires_at', CASE WHEN isfinite(expires_at) THEN extract(epoch FROM expires_at) END,
                'max_retries', max_retries,
                'timeout', extract(epoch FROM timeout),
                'unique_key', unique_key, 'headers', headers, 'cancel_requested', cancel_requested,
                'error', error, 'reason', reason, 'history', history, 'steps', steps,
                'saga', saga) END,
            seq;
        GET DIAGNOSTICS taken = ROW_COUNT;
        FOR budget IN 1 .. cardinality(budgets) LOOP
            IF draws[ask] & (1 << (budget - 1)) <> 0 THEN
                budgets[budget] := budgets[budget] - taken;
            END IF;
        END LOOP;
    END LOOP;
    IF EXISTS (SELECT FROM unique_keys WHERE frees_on_claim AND until IS NULL) THEN
        DELETE FROM unique_keys WHERE frees_on_claim AND until IS NULL AND job = ANY (ARRAY(
            SELECT id FROM jobs WHERE state = 'running' AND worker = holder AND token = fence));
    END IF;
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
    members   uuid[];
BEGIN
    WITH gone AS (
        DELETE FROM jobs USING unnest(ids, tokens, results) AS done (id, token, result)
        WHERE jobs.id = done.id AND jobs.token = done.token
        RETURNING jobs.*, done.result
    ), kept AS (
        INSERT INTO finished_jobs (
            seq, id, kind, queue, priority, key, state, payload, due_at, created_at, updated_at,
            expires_at, started_at, attempt, failures, crashes, max_retries, timeout, unique_key,
            headers, worker, cancel_requested, progress, history, steps, saga, finished_at, result,
            slot)
        SELECT seq, id, kind, queue, priority, key, 'completed', payload, due_at, created_at, now,
               expires_at, started_at, attempt, failures, crashes, max_retries, timeout,
               unique_key, headers, worker, cancel_requested, progress, history, steps, saga,
               now, result, today
        FROM gone
        RETURNING id, unique_key, headers
    )
    SELECT array_agg(id), array_agg(id) FILTER (WHERE unique_key IS NOT NULL),
           array_agg(id) FILTER (WHERE length(headers ->> 'idempotency-key') BETWEEN 1 AND 200),
           array_agg(id) FILTER (WHERE is_member(id))
    INTO completed, keyed, noted, members FROM kept;
    IF keyed IS NOT NULL THEN
        DELETE FROM unique_keys WHERE until IS NULL AND job = ANY (keyed);
    END IF;
    IF noted IS NOT NULL THEN
        PERFORM note_done(noted, now);
    END IF;
    IF members IS NOT NULL THEN
        PERFORM tell_flows(members, 'completed', now);
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
            steps, saga, finished_at, result)
        VALUES (
            job.seq, job.id, job.kind, job.queue, job.priority, job.key, job.state, job.payload,
            job.due_at, job.created_at, job.updated_at, job.expires_at, job.started_at, job.attempt,
            job.failures, job.crashes, job.max_retries, job.timeout, job.unique_key, job.headers,
            job.waiting_for, job.worker, job.token, job.cancel_requested, job.progress, job.error,
            job.reason, job.history, job.steps, job.saga, now, result);
    ELSE
        INSERT INTO finished_jobs (
            seq, id, kind, queue, priority, key, state, payload, due_at, created_at, updated_at,
            expires_at, started_at, attempt, failures, crashes, max_retries, timeout, unique_key,
            headers, waiting_for, worker, token, cancel_requested, progress, error, reason, history,
            steps, saga, finished_at, result, slot)
        VALUES (
            job.seq, job.id, job.kind, job.queue, job.priority, job.key, job.state, job.payload,
            job.due_at, job.created_at, job.updated_at, job.expires_at, job.started_at, job.attempt,
            job.failures, job.crashes, job.max_retries, job.timeout, job.unique_key, job.headers,
            job.waiting_for, job.worker, job.token, job.cancel_requested, job.progress, job.error,
            job.reason, job.history, job.steps, job.saga, now, result, slot_of(now));
        IF job.state = 'completed'
           AND length(job.headers ->> 'idempotency-key') BETWEEN 1 AND 200 THEN
            PERFORM note_done(ARRAY[job.id], now);
        END IF;
    END IF;
    IF is_member(job.id) THEN
        PERFORM tell_flows(ARRAY[job.id], job.state, now);
    END IF;
    IF job.unique_key IS NOT NULL THEN
        DELETE FROM unique_keys WHERE until IS NULL AND unique_keys.job = (finish.job).id;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION settle(transitions json) RETURNS uuid[] LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on
SET plan_cache_mode = force_generic_plan SET jit = off
SET lock_timeout = '3s'
AS $$
#variable_conflict use_column
-- Move jobs out of running, each under its fence. A job that was asked to cancel never waits again;
-- if it has something to undo, it is started once more, for that. Returns those that were moved.
DECLARE
    now     timestamptz := clock();
    today   smallint := slot_of(now);
    move    record;
    job     jobs%ROWTYPE;
    settled uuid[] := '{}';
    queues  text[] := '{}';
    kinds   text[] := '{}';
BEGIN
    FOR move IN
        SELECT * FROM json_to_recordset(transitions) AS m (
            id uuid, token bigint, state text, due_in interval, due_at timestamptz,
            failures integer, crashes integer, result json, error json, reason text, attempt json,
            waiting_for text, steps text[], saga text)
    LOOP
        SELECT * INTO job FROM jobs WHERE id = move.id AND token = move.token FOR UPDATE;
        CONTINUE WHEN NOT FOUND OR move.state = 'running';
        settled := settled || move.id;
        job.saga := coalesce(move.saga, job.saga);
        job.steps := job.steps || move.steps;
        -- What is being undone goes on, whoever asked for what before.
        job.cancel_requested := job.cancel_requested AND job.saga IS DISTINCT FROM 'undoing';
        IF job.cancel_requested AND move.state IN ('scheduled', 'pending') THEN
            move.state := CASE WHEN job.saga = 'ready' THEN 'pending' ELSE 'cancelled' END;
            move.reason := job.reason;
            IF job.saga = 'ready' THEN
                move.due_in := NULL;
                move.due_at := NULL;
            END IF;
        END IF;
        IF move.due_in IS NOT NULL OR move.due_at IS NOT NULL THEN
            job.due_at := greatest(coalesce(now + move.due_in, move.due_at), now);
        END IF;
        job.failures := job.failures + move.failures;
        job.crashes := job.crashes + move.crashes;
        job.error := CASE WHEN move.state = 'completed' THEN NULL
                          ELSE coalesce(move.error, job.error) END;
        job.token := NULL;
        job.updated_at := now;
        IF NOT (job.cancel_requested AND move.state = 'cancelled') THEN
            job.reason := move.reason;
        END IF;
        IF move.attempt IS NOT NULL THEN
            job.history := lengthen(job.history, move.attempt);
        END IF;
        IF move.state IN ('scheduled', 'pending') THEN
            UPDATE jobs SET state = move.state, due_at = job.due_at, failures = job.failures,
                            crashes = job.crashes, error = job.error, token = NULL, worker = NULL,
                            started_at = NULL, updated_at = now, reason = job.reason,
                            history = job.history, steps = job.steps, saga = job.saga,
                            cancel_requested = job.cancel_requested,
                            waiting_for = CASE WHEN move.state = 'scheduled' THEN move.waiting_for END
            WHERE id = move.id;
            IF move.state = 'pending' THEN
                queues := queues || job.queue;
                kinds := kinds || job.kind;
            END IF;
        ELSE
            job.state := move.state;
            PERFORM finish(job, now, move.result);
        END IF;
    END LOOP;
    IF queues <> '{}' AND EXISTS (SELECT FROM sleepers) THEN
        PERFORM wake(queues, kinds);
    END IF;
    RETURN settled;
END $$;

CREATE OR REPLACE FUNCTION promote(most integer) RETURNS integer LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on
SET enable_tidscan = on SET enable_sort = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
-- Make scheduled jobs that are due pending, earliest first.
DECLARE
    now    timestamptz := clock();
    queues text[];
    kinds  text[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    WITH due AS (
        UPDATE jobs SET state = 'pending', waiting_for = NULL, updated_at = now
        WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM jobs
            WHERE state = 'scheduled'
              AND (waiting_for IS NULL OR starts_with(waiting_for, 'event:')) AND due_at <= now
            ORDER BY due_at, seq LIMIT most FOR UPDATE SKIP LOCKED))
        RETURNING queue, kind
    )
    SELECT array_agg(queue), array_agg(kind) INTO queues, kinds FROM due;
    IF queues IS NULL THEN
        RETURN 0;
    END IF;
    IF EXISTS (SELECT FROM sleepers) THEN
        PERFORM wake(queues, kinds);
    END IF;
    RETURN cardinality(queues);
END $$;

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
