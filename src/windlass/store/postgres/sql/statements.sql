-- Statements of the PostgreSQL store that are not functions of its schema, each under its name.
-- {schema} is the name of the schema, {live} and {ended} the columns of jobs in the order of Job.

-- name: schema_number
-- Return the number of the schema, the oldest schema whose releases may work on it, that release,
-- and the digest of the functions. A later step never admits a release that an earlier one
-- excluded.
SELECT max(number) OVER (), oldest, oldest_release, last_value(functions) OVER (
    ORDER BY number ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
FROM {schema}.migrations
ORDER BY oldest DESC, number DESC LIMIT 1

-- name: schema_exists
-- Return whether any migration was applied; not by to_regclass, which may answer from a cache.
SELECT EXISTS (SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
               WHERE nspname = %s AND relname = 'migrations')

-- name: schema_is_used
-- Return whether a schema has any objects.
SELECT EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace(quote_ident(%(schema)s)))
    OR EXISTS (SELECT FROM pg_proc WHERE pronamespace = to_regnamespace(quote_ident(%(schema)s)))

-- name: note_functions
-- Before functions are re-created: remember for this transaction which ones exist.
DO $$ BEGIN
    PERFORM set_config('windlass.functions', array(
        SELECT oid FROM pg_proc WHERE pronamespace = to_regnamespace(quote_ident({literal})))::text, true);
END $$

-- name: grant_functions
-- After functions were re-created: revoke them from PUBLIC (docs/postgresql.md has the grants), and
-- let roles that may change jobs, as workers do, execute the new functions, so that they need no
-- new grant.
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;
DO $$ DECLARE
    new_grant record;
BEGIN
    FOR new_grant IN
        SELECT function.oid::regprocedure AS function, worker.grantee::regrole AS role
        FROM pg_proc AS function, pg_class AS jobs, aclexplode(jobs.relacl) AS worker
        WHERE pronamespace = to_regnamespace(quote_ident({literal}))
          AND function.oid <> ALL (current_setting('windlass.functions')::oid[])
          AND jobs.oid = '{schema}.jobs'::regclass AND worker.privilege_type = 'UPDATE'
          AND worker.grantee NOT IN (0, jobs.relowner)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', new_grant.function, new_grant.role);
    END LOOP;
END $$

-- name: sweep
-- Return the head of every lane.
SELECT queue, kind, priority, key, due_at, seq FROM {schema}.sweep()

-- name: sweep_queues
-- Return the head of every lane of some queues.
SELECT queue, kind, priority, key, due_at, seq FROM {schema}.sweep_queues(%s::text[])

-- name: claim
-- Start pending jobs under a worker's lease.
SELECT asked, id, payload, due_at, created_at, started_at, attempt, failures, crashes, rest, seq
FROM {schema}.claim(%s, %s, %s::text[], %s::text[], %s::integer[], %s::text[],
                    %s::timestamptz[], %s::bigint[], %s::integer[], %s::integer[], %s::integer[],
                    %s::integer[], %s)

-- name: complete
-- Record successes.
SELECT {schema}.complete(%s::uuid[], %s::bigint[], %s::json[])

-- name: settle
-- Record other outcomes.
SELECT {schema}.settle(%s::text::json)

-- name: add
-- Add one new job without a due time.
SELECT {schema}.add($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: enqueue
-- Add jobs.
SELECT id, is_duplicate FROM {schema}.enqueue_many(%s::text::json)

-- name: remember_ids
-- Record that some ids are sent again, and return which of them have live jobs.
SELECT {schema}.remember_ids(%s::uuid[])

-- name: drop_ended
-- Remove jobs that were just added, and had ended before.
SELECT {schema}.drop_ended(%s::uuid[])

-- name: copy_jobs
-- Add many jobs without options; their times are the defaults of the columns.
COPY {schema}.jobs (id, kind, queue, priority, key, payload, max_retries, timeout, headers)
FROM STDIN (FORMAT binary)

-- name: copy_parked
-- Do the same with jobs that are parked from the start.
COPY {schema}.jobs (id, kind, queue, priority, key, payload, max_retries, timeout, headers, state, waiting_for)
FROM STDIN (FORMAT binary)

-- name: wake
-- Notify sleepers of new jobs.
SELECT {schema}.wake(%s::text[], %s::text[])

-- name: wake_and_look
-- Notify sleepers of new jobs, and return which ids of a range were sent more than once.
SELECT ARRAY(SELECT id FROM {schema}.repeated_ids WHERE id BETWEEN %s AND %s),
       {schema}.wake(%s::text[], %s::text[])

-- name: progress
-- Record the progress of a running job, under its fence.
UPDATE {schema}.jobs SET progress = %s::text::json WHERE id = %s AND token = %s

-- name: checkpoint
-- Add to the step logs of running jobs, each under its fence.
SELECT {schema}.checkpoint(%s::text::json)

-- name: stream_append
-- Add chunks to the streams of running jobs, each under its fence.
SELECT chunks, size FROM {schema}.stream_append(%s::text::json)

-- name: stream_read
-- Return whether a job has not ended, and the chunks of its stream after a position.
SELECT EXISTS (SELECT FROM {schema}.jobs WHERE id = %(job)s), attempt, last, chunks
FROM (SELECT) AS always LEFT JOIN LATERAL (
    SELECT attempt, last, chunks FROM {schema}.stream_chunks
    WHERE job = %(job)s AND (attempt, last) > (%(attempt)s, %(number)s)
    ORDER BY attempt, last LIMIT %(limit)s
) AS groups ON true
ORDER BY attempt, last

-- name: promote
-- Make scheduled jobs that are due pending.
SELECT {schema}.promote(%s)

-- name: recall
-- Correct the times of jobs that lie ahead of the clock.
SELECT {schema}.recall(%(by)s::interval, %(ago)s::interval, %(late)s::interval, %(spans)s::text[])

-- name: rescue
-- Take over running jobs whose worker has no live lease.
SELECT {live} FROM {schema}.rescue(%s, %s, %s)

-- name: prune
-- Delete what is past its retention.
SELECT {schema}.prune(%s::interval, %s::interval, %s::interval, %s::interval, %s)

-- name: register
-- Begin a worker's lease.
INSERT INTO {schema}.workers AS known (
    id, info, pulse, lease, started_at, last_seen, since, lease_until)
SELECT %(id)s, %(info)s::text::json, %(pulse)s::text::json, %(lease)s::interval, now, now, now,
       now + %(lease)s::interval
FROM {schema}.clock() AS now
ON CONFLICT (id) DO UPDATE SET
    info = excluded.info, pulse = excluded.pulse, lease = excluded.lease,
    started_at = excluded.started_at, last_seen = excluded.last_seen, since = excluded.since,
    lease_until = excluded.lease_until, ended = false

-- name: beat
-- Renew a worker's lease.
SELECT {schema}.beat(%s, %s::text::json)

-- name: retire
-- End a worker's lease for good.
UPDATE {schema}.workers SET ended = true WHERE id = %s

-- name: sleep
-- Register as a sleeper, to be notified of new jobs.
SELECT {schema}.sleep(%s, %s, %s::text[], %s::text[], %s::text[], %s::interval)

-- name: rise
-- Stop being notified.
SELECT {schema}.rise(%s)

-- name: tell
-- Notify all listeners of a word, to see which of them receive it.
SELECT pg_notify({channel}, %s)

-- name: held
-- List the running jobs of a worker.
SELECT {live} FROM {schema}.jobs WHERE state = 'running' AND worker = %s ORDER BY seq

-- name: cancel_requests
-- List the running jobs of a worker that have a cancel request.
SELECT id FROM {schema}.jobs WHERE state = 'running' AND worker = %s AND cancel_requested

-- name: list_records
-- Return the records whose names begin with a prefix.
SELECT name, value FROM {schema}.records WHERE starts_with(name, %s)

-- name: list_last_records
-- Return the last records whose names lie in a range, in descending order.
SELECT name, value FROM {schema}.records
WHERE name >= %s AND name < %s ORDER BY name DESC LIMIT %s

-- name: lock_records
-- Lock records until the end of the transaction, whether they exist or not, and return them.
SELECT name, value FROM {schema}.lock_records(%s::text[])

-- name: write_records
-- Set records.
INSERT INTO {schema}.records (name, value)
SELECT name, value::json FROM unnest(%s::text[], %s::text[]) AS changed (name, value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: set_alarms
-- Set or remove the alarms of records.
UPDATE {schema}.records SET alarm = changed.alarm
FROM unnest(%s::text[], %s::timestamptz[]) AS changed (name, alarm)
WHERE records.name = changed.name

-- name: ringing
-- Return records whose alarm is due, the earliest first; then, without a name, the time, and when
-- the next alarm is due.
WITH rung AS (
    SELECT name, value, alarm FROM {schema}.records
    WHERE alarm <= {schema}.clock() ORDER BY alarm, name LIMIT %(limit)s
)
(SELECT name, value, NULL::timestamptz, NULL::timestamptz FROM rung ORDER BY alarm, name)
UNION ALL
SELECT NULL, NULL, {schema}.clock(), (
    SELECT alarm FROM {schema}.records
    WHERE alarm IS NOT NULL AND name NOT IN (SELECT name FROM rung) ORDER BY alarm LIMIT 1)

-- name: news_topics
-- Return topics that have news, the oldest first.
SELECT DISTINCT topic FROM (SELECT topic FROM {schema}.news LIMIT 5000) AS oldest LIMIT %s

-- name: take_news
-- Return the news of topics, the oldest first, and delete them.
WITH heard AS (
    DELETE FROM {schema}.news USING (
        SELECT topic, id FROM {schema}.news WHERE topic = ANY (%s::text[])
        ORDER BY at, id LIMIT %s) AS oldest
    WHERE news.topic = oldest.topic AND news.id = oldest.id
    RETURNING news.topic, news.id, news.body, news.at
)
SELECT topic, id, body, at FROM heard ORDER BY at, id

-- name: send_news
-- Keep news until a worker hears them.
SELECT {schema}.send_news(%s::text::json)

-- name: unpark
-- Unpark the jobs that wait for something.
SELECT {schema}.unpark(%s::text[])

-- name: delete_records
-- Remove records.
DELETE FROM {schema}.records WHERE name = ANY (%s::text[])

-- name: clock
-- Return the server's time.
SELECT {schema}.clock()

-- name: lock_live
-- Return a live job, and lock it until the end of the transaction.
SELECT {live} FROM {schema}.jobs WHERE id = %s FOR UPDATE

-- name: lock_many
-- Do the same with many, one after the other in the order of their ids.
SELECT {live} FROM {schema}.jobs WHERE id = ANY (%s::uuid[]) ORDER BY id FOR UPDATE

-- name: lock_dead
-- Do the same with a dead one.
SELECT {ended} FROM {schema}.dead_jobs WHERE id = %s FOR UPDATE

-- name: move_live
-- Store a live job after a verb that keeps it live.
UPDATE {schema}.jobs SET
    state = %(state)s, due_at = %(due_at)s, waiting_for = %(waiting_for)s, reason = %(reason)s,
    cancel_requested = %(cancel_requested)s, updated_at = {schema}.clock()
WHERE id = %(id)s

-- name: take
-- Start a pending job under a worker's lease.
WITH freed AS (
    DELETE FROM {schema}.unique_keys WHERE job = %(id)s AND frees_on_claim AND until IS NULL)
UPDATE {schema}.jobs SET
    state = 'running', attempt = attempt + 1, worker = %(worker)s, token = %(token)s,
    started_at = %(now)s, updated_at = %(now)s, progress = NULL
WHERE id = %(id)s

-- name: cancel_live
-- Move a waiting job that was cancelled to the finished jobs.
SELECT {schema}.cancel_job(job, %(reason)s, {schema}.clock()) FROM {schema}.jobs AS job
WHERE id = %(id)s

-- name: cancel_many
-- Do the same with many.
SELECT {schema}.cancel_job(job, move.reason, {schema}.clock())
FROM unnest(%s::uuid[], %s::text[]) AS move (id, reason)
JOIN {schema}.jobs AS job ON job.id = move.id

-- name: redrive
-- Make a dead job live again.
WITH job AS (DELETE FROM {schema}.dead_jobs WHERE id = %(id)s RETURNING *)
INSERT INTO {schema}.jobs (
    seq, id, kind, queue, priority, key, state, payload, due_at, created_at, attempt, max_retries,
    timeout, unique_key, headers, progress, error, reason, history, steps, saga)
SELECT seq, id, kind, queue, priority, key, 'pending', %(payload)s::text::json, %(due_at)s, created_at, attempt,
       max_retries, timeout, unique_key, headers, progress, error, %(reason)s, history,
       %(steps)s::text[], %(saga)s
FROM job

-- name: reseal
-- Replace the payload of a waiting or dead job by the same one in another encryption.
WITH live AS (UPDATE {schema}.jobs SET payload = %(payload)s::text::json WHERE id = %(id)s)
UPDATE {schema}.dead_jobs SET payload = %(payload)s::text::json WHERE id = %(id)s

-- name: lock_many_dead
-- Lock jobs that have ended, one after the other in the order of their ids, and return them.
SELECT {ended} FROM {schema}.dead_jobs WHERE id = ANY (%s::uuid[]) ORDER BY id FOR UPDATE

-- name: lock_many_finished
-- Do the same with finished ones.
SELECT {ended} FROM {schema}.finished_jobs WHERE id = ANY (%s::uuid[]) ORDER BY id FOR UPDATE

-- name: purge
-- Delete jobs that have ended.
WITH finished AS (
    DELETE FROM {schema}.finished_jobs WHERE id = ANY (%(ids)s::uuid[])
), streams AS (
    DELETE FROM {schema}.streams WHERE job = ANY (%(ids)s::uuid[])
), chunks AS (
    DELETE FROM {schema}.stream_chunks WHERE job = ANY (%(ids)s::uuid[])
)
DELETE FROM {schema}.dead_jobs WHERE id = ANY (%(ids)s::uuid[])

-- name: get_live
-- Return a live or dead job.
SELECT {live} FROM {schema}.jobs WHERE id = %(id)s
UNION ALL
SELECT {ended} FROM {schema}.dead_jobs WHERE id = %(id)s

-- name: get_finished
-- Return a finished job.
SELECT {ended} FROM {schema}.finished_jobs WHERE id = %(id)s LIMIT 1

-- name: get_many
-- Return jobs in any state.
SELECT {live} FROM {schema}.jobs WHERE id = ANY (%(ids)s::uuid[])
UNION ALL
SELECT {ended} FROM {schema}.dead_jobs WHERE id = ANY (%(ids)s::uuid[])
UNION ALL
SELECT {ended} FROM {schema}.finished_jobs WHERE id = ANY (%(ids)s::uuid[])

-- name: done
-- Return the job that was completed with an idempotency key, if it is still kept.
SELECT {ended} FROM {schema}.finished_jobs
WHERE id = (SELECT job FROM {schema}.done_keys WHERE kind = %(kind)s AND key = %(key)s)
  AND slot = (SELECT {schema}.slot_of(at) FROM {schema}.done_keys
              WHERE kind = %(kind)s AND key = %(key)s)

-- name: find
-- List jobs, newest first; a table that has no job in these states is not read.
SELECT * FROM (
    (SELECT {live} FROM {schema}.jobs WHERE %(in_live)s AND {fits}
     ORDER BY id DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT {ended} FROM {schema}.dead_jobs WHERE %(in_dead)s AND {fits}
     ORDER BY id DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT {ended} FROM {schema}.finished_jobs WHERE %(in_finished)s AND {fits}
     ORDER BY id DESC LIMIT %(limit)s)
) AS found
ORDER BY id DESC LIMIT %(limit)s

-- name: find_edge
-- Return the last id of the next slice of jobs; nothing if there are fewer.
SELECT id FROM (
    (SELECT id FROM {schema}.jobs WHERE %(in_live)s AND id BETWEEN %(first)s AND %(last)s
     ORDER BY id DESC LIMIT %(rows)s)
    UNION ALL
    (SELECT id FROM {schema}.dead_jobs WHERE %(in_dead)s AND id BETWEEN %(first)s AND %(last)s
     ORDER BY id DESC LIMIT %(rows)s)
    UNION ALL
    (SELECT id FROM {schema}.finished_jobs WHERE %(in_finished)s AND id BETWEEN %(first)s AND %(last)s
     ORDER BY id DESC LIMIT %(rows)s)
) AS slice
ORDER BY id DESC LIMIT 1 OFFSET %(before_edge)s

-- name: find_slice
-- List the jobs of a slice that fit. The slice is taken by ids alone, whatever other index there
-- is: so it is bounded.
SELECT * FROM (
    (SELECT {live} FROM (SELECT * FROM {schema}.jobs
                         WHERE %(in_live)s AND id BETWEEN %(first)s AND %(last)s
                         ORDER BY id DESC LIMIT %(rows)s) AS slice
     WHERE {fits} ORDER BY id DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT {ended} FROM (SELECT * FROM {schema}.dead_jobs
                          WHERE %(in_dead)s AND id BETWEEN %(first)s AND %(last)s
                          ORDER BY id DESC LIMIT %(rows)s) AS slice
     WHERE {fits} ORDER BY id DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT {ended} FROM (SELECT * FROM {schema}.finished_jobs
                          WHERE %(in_finished)s AND id BETWEEN %(first)s AND %(last)s
                          ORDER BY id DESC LIMIT %(rows)s) AS slice
     WHERE {fits} ORDER BY id DESC LIMIT %(limit)s)
) AS found
ORDER BY id DESC LIMIT %(limit)s

-- name: error_groups
-- List the errors of dead jobs, each with the newest job that died of it.
-- Those that died last are looked at, along their index.
WITH looked_at AS MATERIALIZED (
    SELECT id, kind, finished_at, fingerprint
    FROM {schema}.dead_jobs ORDER BY finished_at DESC LIMIT %(most)s
), largest AS MATERIALIZED (
    SELECT fingerprint, kind, count(*) AS number, min(finished_at) AS first_seen,
           max(finished_at) AS last_seen, max(id::text COLLATE "C")::uuid AS newest
    FROM looked_at WHERE %(kind)s::text IS NULL OR kind = %(kind)s
    GROUP BY 1, 2 ORDER BY number DESC, kind, fingerprint LIMIT %(limit)s
)
SELECT largest.fingerprint, largest.kind, number, first_seen, last_seen, newest, error, reason
FROM largest JOIN {schema}.dead_jobs AS jobs ON jobs.id = newest
ORDER BY number DESC, largest.kind, largest.fingerprint

-- name: last_grouped
-- Return when the last of the dead jobs died that are not looked at for their errors.
SELECT finished_at FROM {schema}.dead_jobs ORDER BY finished_at DESC LIMIT 1 OFFSET %(most)s

-- name: count_finished
-- Count the newest finished jobs by queue and state.
SELECT queue, state, count(*)
FROM (SELECT queue, state FROM {schema}.finished_jobs ORDER BY id DESC LIMIT %(most)s + 1) AS counted
GROUP BY queue, state

-- name: oldest_waiting
-- Return the due time of the oldest pending job of each queue, and of the oldest scheduled one, as
-- far as those were counted.
SELECT queue, 'pending', min(due_at) FROM {schema}.sweep() WHERE queue IS NOT NULL GROUP BY queue
UNION ALL
SELECT queue, 'scheduled', min(due_at)
FROM ((SELECT queue, due_at FROM {schema}.jobs
       WHERE state = 'scheduled' AND (waiting_for IS NULL OR starts_with(waiting_for, 'event:'))
       ORDER BY due_at, seq LIMIT %(most)s)
      UNION ALL
      (SELECT queue, due_at FROM {schema}.jobs
       WHERE state = 'scheduled' AND waiting_for IS NOT NULL
         AND NOT starts_with(waiting_for, 'event:')
       LIMIT %(most)s)) AS counted
GROUP BY queue

-- name: standing
-- Count the jobs that are ahead of one in its queue, and those that ended there since it was due,
-- or recently; with the length of that time, and the first job of its lane. Lane by lane, since
-- each is walked in its order, and no further than to the job's own place.
SELECT (SELECT count(*) FROM (
            SELECT FROM {schema}.sweep() AS lane CROSS JOIN LATERAL (
                SELECT FROM {schema}.jobs AS other
                WHERE other.state = 'pending' AND other.queue = lane.queue
                  AND other.kind = lane.kind AND other.priority = lane.priority
                  AND other.key = lane.key AND (other.due_at, other.seq)
                      < (own.due_at + (lane.priority - own.priority) * %(step)s::interval, own.seq)
                LIMIT %(limit)s) AS before
            WHERE lane.queue = own.queue
            LIMIT %(limit)s) AS ahead),
       (SELECT count(*) FROM {schema}.finished_jobs AS finished
        WHERE finished.queue = own.queue
          AND finished.finished_at > greatest(now - %(span)s::interval, own.due_at)
          AND finished.slot IN ({schema}.slot_of(now), {schema}.slot_of(now - %(span)s::interval)))
       + (SELECT count(*) FROM {schema}.dead_jobs AS dead
          WHERE dead.queue = own.queue
            AND dead.finished_at > greatest(now - %(span)s::interval, own.due_at)),
       now - greatest(now - %(span)s::interval, own.due_at, least(
           (SELECT min(finished.started_at) FROM {schema}.finished_jobs AS finished
            WHERE finished.queue = own.queue
              AND finished.finished_at > greatest(now - %(span)s::interval, own.due_at)
              AND finished.slot
                  IN ({schema}.slot_of(now), {schema}.slot_of(now - %(span)s::interval))),
           (SELECT min(dead.started_at) FROM {schema}.dead_jobs AS dead
            WHERE dead.queue = own.queue
              AND dead.finished_at > greatest(now - %(span)s::interval, own.due_at)))),
       (SELECT head.id FROM {schema}.jobs AS head
        WHERE head.state = 'pending' AND head.queue = own.queue AND head.kind = own.kind
          AND head.priority = own.priority AND head.key = own.key
        ORDER BY head.due_at, head.seq LIMIT 1)
FROM {schema}.jobs AS own, {schema}.clock() AS now WHERE own.id = %(id)s

-- name: by_index_only
-- Let this transaction walk indexes, even for tables without statistics.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_indexscan', 'on', true), set_config('enable_indexonlyscan', 'on', true),
       set_config('enable_sort', 'off', true), set_config('jit', 'off', true),
       set_config('statement_timeout', %(timeout)s, true)

-- name: depths
-- Count jobs that are not finished by queue and state, in bounded time: the pending jobs of each
-- queue along their index, the others up to a number of each state.
WITH RECURSIVE queues AS (
    (SELECT queue FROM {schema}.jobs WHERE state = 'pending' ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT jobs.queue FROM {schema}.jobs
            WHERE state = 'pending' AND jobs.queue > queues.queue ORDER BY jobs.queue LIMIT 1)
    FROM queues WHERE queues.queue IS NOT NULL
), known AS (
    SELECT queue FROM queues WHERE queue IS NOT NULL LIMIT %(queues)s
), due AS (
    SELECT queue FROM {schema}.jobs
    WHERE state = 'scheduled' AND (waiting_for IS NULL OR starts_with(waiting_for, 'event:'))
    ORDER BY due_at, seq LIMIT %(most)s + 1
), parked AS (
    SELECT queue FROM {schema}.jobs
    WHERE state = 'scheduled' AND waiting_for IS NOT NULL AND NOT starts_with(waiting_for, 'event:')
    LIMIT %(most)s + 1
)
SELECT queue, 'pending' AS state,
       (SELECT count(*) FROM (SELECT FROM {schema}.jobs
                              WHERE state = 'pending' AND jobs.queue = known.queue
                              LIMIT greatest(%(most)s / share.queues, 1) + 1) AS counted)
FROM known, (SELECT count(*) AS queues FROM known) AS share
UNION ALL
SELECT queue, 'running', count(*)
FROM (SELECT queue FROM {schema}.jobs WHERE state = 'running' LIMIT %(most)s + 1) AS counted
GROUP BY queue
UNION ALL
SELECT queue, 'scheduled', count(*)
FROM (SELECT queue FROM due UNION ALL SELECT queue FROM parked) AS counted GROUP BY queue
UNION ALL
SELECT queue, 'dead', count(*)
FROM (SELECT queue FROM {schema}.dead_jobs ORDER BY finished_at DESC LIMIT %(most)s + 1) AS counted
GROUP BY queue

-- name: arrivals
-- Count the jobs by queue whose ids are within bounds, in bounded time.
SELECT queue, count(*)
FROM (SELECT queue FROM {schema}.jobs WHERE id >= %(since)s AND id < %(until)s
      UNION ALL
      SELECT queue FROM {schema}.dead_jobs WHERE id >= %(since)s AND id < %(until)s
      UNION ALL
      SELECT queue FROM {schema}.finished_jobs WHERE id >= %(since)s AND id < %(until)s
      LIMIT %(most)s + 1) AS counted
GROUP BY queue

-- name: snapshot_age
-- Return for how many seconds the oldest snapshot of this database has been held, by a session, a
-- prepared transaction or an idle slot; null if this role may not see since when some are held. A
-- vacuum blocks nothing. Slots have the time since when they are idle from PostgreSQL 17 on.
WITH held AS (
    SELECT xact_start AS since, backend_type IS NULL AS hidden
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
      AND coalesce(leader_pid, pid) NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
    UNION ALL
    SELECT prepared, false FROM pg_prepared_xacts WHERE database = current_database()
    UNION ALL
    SELECT (to_jsonb(slots) ->> 'inactive_since')::timestamptz, false
    FROM pg_replication_slots AS slots
    WHERE NOT active AND (database IS NULL OR database = current_database())
      AND greatest(age(xmin), age(catalog_xmin)) > 100000
)
SELECT CASE WHEN bool_or(hidden) THEN NULL
            ELSE coalesce(extract(epoch FROM clock_timestamp() - min(since)), 0)::float8 END
FROM held

-- name: list_workers
-- Return the known workers, newest first.
SELECT info, pulse, started_at, last_seen, lease_until,
       NOT ended AND lease_until > now AND last_seen <= now + lease, ended
FROM {schema}.workers, {schema}.clock() AS now ORDER BY started_at DESC, id

-- name: old_snapshots
-- Return how long a session has held the oldest snapshot of this database, and which; not a vacuum,
-- which blocks nothing.
SELECT pid, usename, application_name, extract(epoch FROM now() - xact_start)::bigint
FROM pg_stat_activity
WHERE datname = current_database() AND xact_start < now() - %(old)s::interval
  AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
  AND coalesce(leader_pid, pid) NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
ORDER BY xact_start LIMIT 1

-- name: old_prepared
-- List prepared transactions that were neither committed nor rolled back.
SELECT gid, owner, extract(epoch FROM now() - prepared)::bigint
FROM pg_prepared_xacts
WHERE database = current_database() AND prepared < now() - %(old)s::interval
ORDER BY prepared LIMIT 5

-- name: idle_slots
-- List replication slots that keep rows for an absent reader.
SELECT slot_name, greatest(age(xmin), age(catalog_xmin))
FROM pg_replication_slots
WHERE NOT active AND (database IS NULL OR database = current_database())
  AND greatest(age(xmin), age(catalog_xmin)) > 100000
ORDER BY 2 DESC LIMIT 5

-- name: bloat
-- List tables with far more dead rows than live ones that no vacuum has visited for long.
SELECT relid::regclass::text, n_live_tup, n_dead_tup, pg_table_size(relid),
       coalesce(extract(epoch FROM now() - greatest(last_vacuum, last_autovacuum)), -1)::bigint,
       current_setting('autovacuum')::boolean
           AND NOT coalesce(reloptions::text ILIKE '%%autovacuum_enabled=%%f%%', false)
FROM pg_stat_user_tables JOIN pg_class ON pg_class.oid = relid
WHERE relnamespace = to_regnamespace(quote_ident({literal}))
  AND n_dead_tup > greatest(%(dead_rows)s, 2 * n_live_tup)
  AND coalesce(greatest(last_vacuum, last_autovacuum), pg_postmaster_start_time())
      < now() - %(old)s::interval
ORDER BY n_dead_tup DESC LIMIT 5

-- name: lineage
-- Return the server's identifier, its timeline and the schema's oid; no row on a standby.
SELECT concat_ws('/', system_identifier,
                 substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), pg_namespace.oid)
FROM pg_control_system(), pg_namespace
WHERE pg_namespace.oid = to_regnamespace(quote_ident({literal})) AND NOT pg_is_in_recovery()

-- name: notifications
-- Return how full the notification queue is, and which session has been in a transaction for
-- longest.
SELECT pg_notification_queue_usage(), pid, application_name
FROM pg_stat_activity
WHERE datname = current_database() AND xact_start IS NOT NULL AND backend_type = 'client backend'
ORDER BY xact_start LIMIT 1
