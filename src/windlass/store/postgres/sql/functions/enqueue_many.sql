CREATE OR REPLACE FUNCTION enqueue_many(new_jobs json)
RETURNS TABLE (id uuid, is_duplicate boolean) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
-- Add jobs, and return for each, in order, its id or that of the holder of its unique key. A job
-- whose request was sent before may have ended meanwhile, and is then in another table. A request
-- that its producer knows to be fresh, the first with this id, need not be searched there: it adds
-- nothing if its repetition came first. A request that may be a repetition says so (fresh is
-- false).
DECLARE
    now     timestamptz := clock();
    new     record;
    misfit  text[];
    holder  uuid;
    amended record;
    fresh   boolean;
    known   boolean;
    -- In other isolation levels the snapshot does not show later commits: there the primary key of
    -- repeated_ids finds the repetition, and raises a serialization failure.
    current boolean := current_setting('transaction_isolation') = 'read committed';
    queues  text[] := '{}';
    kinds   text[] := '{}';
    fields  text[] := '{id,kind,payload,queue,priority,key,delay,at,expires_in,expires_at,max_retries,timeout,unique,unique_until,on_duplicate,headers,waiting_for,fresh}';
BEGIN
    -- Windlass's own producers say whether a request is fresh, and have validated their jobs.
    IF new_jobs -> 0 -> 'fresh' IS NULL THEN
        IF json_typeof(new_jobs) IS DISTINCT FROM 'array' THEN
            PERFORM refuse(ARRAY['jobs must be a JSON array, got ' || quoted(new_jobs),
                                 'write: [{"kind": "send_email", "payload": {}}]']);
        END IF;
        PERFORM refuse(found)
        FROM json_array_elements(new_jobs) AS job, draft_misfit(job, fields, true) AS found
        WHERE found IS NOT NULL;
    END IF;
    FOR new IN
        SELECT * FROM json_to_recordset(new_jobs) AS job (
            id uuid, kind text, payload json, queue text, priority integer, key text,
            delay interval, at timestamptz, expires_in interval, expires_at timestamptz,
            max_retries integer, timeout interval, "unique" text, unique_until text,
            on_duplicate text, headers json, waiting_for text, fresh boolean)
    LOOP
        misfit := job_misfit(
            new.kind, new.queue, new.priority, new.key, new.payload, new.max_retries, new.timeout,
            new.headers, is_member(new.id));
        IF misfit IS NULL AND num_nonnulls(
            new.delay, new.at, new.expires_in, new.expires_at, new.unique, new.waiting_for) > 0 THEN
            misfit := option_misfit(
                new.delay, new.at, new.expires_in, new.expires_at, new.unique, new.unique_until,
                new.on_duplicate, new.waiting_for);
        END IF;
        IF misfit IS NOT NULL THEN
            PERFORM refuse(misfit);
        END IF;
        id := coalesce(new.id, new_id(now));
        is_duplicate := false;
        fresh := new.id IS NULL OR new.fresh IS TRUE AND current;
        IF fresh THEN
            known := EXISTS (SELECT FROM repeated_ids WHERE repeated_ids.id = new.id);
        ELSE
            known := EXISTS (SELECT FROM jobs WHERE jobs.id = new.id)
                     OR EXISTS (SELECT FROM ended_ids(ARRAY[new.id]));
        END IF;
        IF NOT fresh AND NOT known AND new.unique IS NOT NULL THEN
            -- A repeated request may have changed the holder of its key already, and does not do so
            -- again.
            SELECT repeated_ids.holder INTO holder FROM repeated_ids
            WHERE repeated_ids.id = new.id AND repeated_ids.holder IS NOT NULL;
            IF FOUND THEN
                known := true;
                id := holder;
                is_duplicate := true;
            END IF;
        END IF;
        IF known THEN
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF new.fresh IS NOT NULL AND NOT fresh THEN
            PERFORM remember_ids(ARRAY[id]);
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
                    IF new.id IS NOT NULL THEN
                        INSERT INTO repeated_ids (id, holder) VALUES (new.id, holder)
                        ON CONFLICT (id) DO UPDATE SET holder = excluded.holder;
                    END IF;
                    EXIT;
                END IF;
                -- If the holder was claimed during the wait, it may have freed the key: then this
                -- is a new job.
                EXIT WHEN EXISTS (
                    SELECT FROM unique_keys
                    WHERE unique_keys.key = new.unique AND job = holder
                      AND (until IS NULL OR until > clock()));
            END LOOP;
            IF holder <> id THEN
                id := holder;
                is_duplicate := true;
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
        -- Checked again: only after the insert can no other request add the same id and have it
        -- end.
        IF FOUND AND (CASE
            WHEN fresh THEN EXISTS (SELECT FROM repeated_ids WHERE repeated_ids.id = new.id)
            ELSE EXISTS (SELECT FROM ended_ids(ARRAY[new.id])) END)
        THEN
            DELETE FROM jobs WHERE jobs.id = new.id;
            -- A key with a time is freed only if this request has taken it.
            DELETE FROM unique_keys WHERE job = new.id AND (until IS NULL OR until = CASE
                WHEN new.unique_until NOT IN ('claimed', 'settled')
                THEN now + new.unique_until::interval END);
        END IF;
        queues := queues || coalesce(new.queue, 'default');
        kinds := kinds || new.kind;
        RETURN NEXT;
    END LOOP;
    IF EXISTS (SELECT FROM sleepers) THEN
        PERFORM wake(queues, kinds);
    END IF;
END $$;
COMMENT ON FUNCTION enqueue_many(json) IS
    'Adds jobs, all or none; returns for each its id, or the existing one with its unique key.';
