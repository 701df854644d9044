-- Every statement of the SQLite store, each under its name. Values are always bound.

-- name: insert_jobs
-- Add jobs, unless their ids exist already. One row of values is written here; the store repeats
-- it, since many rows by one statement take half the time of as many statements.
INSERT INTO jobs (id, kind, queue, priority, key, state, payload, due_at, created_at, expires_at,
                  max_retries, timeout, unique_key, headers, waiting_for)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING

-- name: insert_plain_jobs
-- The same for jobs without options, as most are: six fewer bound NULLs take half the time.
INSERT INTO jobs (id, kind, queue, priority, key, state, payload, due_at, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING

-- name: job_exists
-- Return whether an id is taken.
SELECT 1 FROM jobs WHERE id = ?

-- name: unique_holder
-- Find the job that holds a unique key now.
SELECT job FROM unique_keys WHERE key = ? AND (until IS NULL OR until > ?)

-- name: hold_unique_key
-- Give a free unique key to a job.
INSERT INTO unique_keys (key, job, frees_on_claim, until) VALUES (?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET
    job = excluded.job, frees_on_claim = excluded.frees_on_claim, until = excluded.until

-- name: amend_job
-- Let a duplicate change the job that holds its unique key.
UPDATE jobs SET payload = :payload, key = :key, headers = :headers, due_at = :due_at, state = :state
WHERE id = :id

-- name: any_unique_key
-- Return whether any job holds a key for as long as its state says.
SELECT 1 FROM unique_keys WHERE until IS NULL LIMIT 1

-- name: free_unique_keys
-- Free the keys of the finished ones among some jobs, unless they are held for a time.
DELETE FROM unique_keys WHERE until IS NULL AND job IN (
    SELECT id FROM jobs
    WHERE id IN (SELECT value FROM json_each(?)) AND state IN ('completed', 'dead', 'cancelled')
)

-- name: free_unique_key_on_claim
-- Free the key of a claimed job, if it was held only while the job waited.
DELETE FROM unique_keys WHERE key = ? AND job = ? AND frees_on_claim AND until IS NULL

-- name: free_unique_keys_on_claim
-- Do the same for all jobs of a claim.
DELETE FROM unique_keys WHERE frees_on_claim AND until IS NULL AND (key, job) IN (
    SELECT unique_key, id FROM jobs
    WHERE seq IN (SELECT value FROM json_each(?)) AND unique_key IS NOT NULL
)

-- name: sweep_heads
-- Walk the lanes that have pending jobs, and return the head of each. The next lane is found by at
-- most four index steps; a row-value comparison would say the same in one line, and walk every job
-- of the lane before.
WITH RECURSIVE heads (seq) AS (
    SELECT * FROM (SELECT seq FROM jobs WHERE state = 'pending'
                   ORDER BY queue, kind, priority, key, due_at LIMIT 1)
    UNION ALL
    SELECT coalesce(
        (SELECT seq FROM jobs AS next
         WHERE next.state = 'pending' AND next.queue = here.queue AND next.kind = here.kind
           AND next.priority = here.priority AND next.key > here.key
         ORDER BY next.key, next.due_at LIMIT 1),
        (SELECT seq FROM jobs AS next
         WHERE next.state = 'pending' AND next.queue = here.queue AND next.kind = here.kind
           AND next.priority > here.priority
         ORDER BY next.priority, next.key, next.due_at LIMIT 1),
        (SELECT seq FROM jobs AS next
         WHERE next.state = 'pending' AND next.queue = here.queue AND next.kind > here.kind
         ORDER BY next.kind, next.priority, next.key, next.due_at LIMIT 1),
        (SELECT seq FROM jobs AS next
         WHERE next.state = 'pending' AND next.queue > here.queue
         ORDER BY next.queue, next.kind, next.priority, next.key, next.due_at LIMIT 1))
    FROM heads JOIN jobs AS here USING (seq)
)
SELECT queue, kind, priority, key, due_at FROM heads JOIN jobs USING (seq)

-- name: sweep_heads_of_queues
-- Do the same for the lanes of some queues: begin once in each, and step to no other queue.
WITH RECURSIVE heads (seq) AS (
    SELECT (SELECT seq FROM jobs WHERE state = 'pending' AND queue = served.value
            ORDER BY queue, kind, priority, key, due_at LIMIT 1)
    FROM json_each(?) AS served
    UNION ALL
    SELECT coalesce(
        (SELECT seq FROM jobs AS next
         WHERE next.state = 'pending' AND next.queue = here.queue AND next.kind = here.kind
           AND next.priority = here.priority AND next.key > here.key
         ORDER BY next.key, next.due_at LIMIT 1),
        (SELECT seq FROM jobs AS next
         WHERE next.state = 'pending' AND next.queue = here.queue AND next.kind = here.kind
           AND next.priority > here.priority
         ORDER BY next.priority, next.key, next.due_at LIMIT 1),
        (SELECT seq FROM jobs AS next
         WHERE next.state = 'pending' AND next.queue = here.queue AND next.kind > here.kind
         ORDER BY next.kind, next.priority, next.key, next.due_at LIMIT 1))
    FROM heads JOIN jobs AS here USING (seq)
)
SELECT queue, kind, priority, key, due_at FROM heads JOIN jobs USING (seq)

-- name: next_due
-- Return when the earliest scheduled job is due, or stops waiting for an event.
SELECT due_at FROM jobs
WHERE state = 'scheduled' AND (waiting_for IS NULL OR substr(waiting_for, 1, 6) = 'event:')
ORDER BY due_at LIMIT 1

-- name: oldest_of_lane
-- Return the numbers of the oldest jobs of a lane, as one list: every row of an answer lets the
-- interpreter's lock go, and others wait for the writer meanwhile.
SELECT json_group_array(seq) FROM (
    SELECT seq FROM jobs
    WHERE state = 'pending'
      AND queue = :queue AND kind = :kind AND priority = :priority AND key = :key
    ORDER BY due_at, seq LIMIT :count
)

-- name: claim_jobs
-- Start jobs under a worker's lease.
UPDATE jobs SET state = 'running', attempt = attempt + 1, worker = :worker, token = :token,
                started_at = :now, progress = NULL
WHERE seq IN (SELECT value FROM json_each(:seqs))

-- name: claimed_jobs
-- Return jobs that were just claimed and are still held, each with its place in the claim.
SELECT claim.key, jobs.* FROM json_each(?) AS claim CROSS JOIN jobs ON jobs.seq = claim.value
WHERE jobs.token = ?

-- name: complete_alike
-- Record successes with the same result, each under its fence.
UPDATE jobs SET state = 'completed', token = NULL, finished_at = :now, result = :result,
                error = NULL, reason = :reason
WHERE id IN (SELECT value FROM json_each(:ids)) AND token = :token

-- name: complete_jobs
-- Record successes, each under its fence: a list of [id, token, result, reason].
UPDATE jobs SET state = 'completed', token = NULL, finished_at = :now, result = done.result,
                error = NULL, reason = done.reason
FROM (
    SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS token,
           json_extract(value, '$[2]') AS result, json_extract(value, '$[3]') AS reason
    FROM json_each(:successes)
) AS done
WHERE jobs.id = done.id AND jobs.token = done.token

-- name: settle_job
-- Move a job out of running under its fence. A job with a cancel request never waits again; if it
-- has steps to undo, it is started once more, to undo them.
UPDATE jobs SET
    state       = CASE WHEN NOT (:waits AND asked) THEN :state
                       WHEN undoable THEN 'pending' ELSE 'cancelled' END,
    due_at      = CASE WHEN :waits AND asked AND undoable THEN due_at
                       ELSE coalesce(:due_at, due_at) END,
    failures    = failures + :failures,
    crashes     = crashes + :crashes,
    worker      = CASE WHEN :waits AND (undoable OR NOT asked) THEN NULL ELSE worker END,
    started_at  = CASE WHEN :waits AND (undoable OR NOT asked) THEN NULL ELSE started_at END,
    finished_at = CASE WHEN :waits AND (undoable OR NOT asked) THEN NULL ELSE :now END,
    waiting_for = CASE WHEN asked THEN NULL ELSE :waiting_for END,
    cancel_requested = asked,
    steps       = CASE WHEN :steps = '[]' THEN steps
                       WHEN steps = '[]' THEN :steps
                       ELSE substr(steps, 1, length(steps) - 1) || ',' || substr(:steps, 2) END,
    saga        = coalesce(:saga, saga),
    token       = NULL,
    result      = :result,
    error       = CASE WHEN :state = 'completed' THEN NULL ELSE coalesce(:error, error) END,
    reason      = CASE WHEN asked AND (:waits OR :state = 'cancelled') THEN reason
                       ELSE :reason END,
    history     = CASE
        WHEN :attempt IS NULL THEN history
        WHEN json_array_length(history) < :history_kept THEN json_insert(history, '$[#]', json(:attempt))
        ELSE json_insert(json_remove(history, '$[0]'), '$[#]', json(:attempt)) END
FROM (
    SELECT seq AS this, coalesce(:saga, saga, '') = 'ready' AS undoable,
           cancel_requested AND coalesce(:saga, saga, '') <> 'undoing' AS asked
    FROM jobs WHERE id = :id AND token = :token
) AS held
WHERE seq = this AND :state <> 'running'

-- name: checkpoint
-- Add to the step log of a running job, under its fence.
UPDATE jobs SET
    steps = CASE WHEN steps = '[]' THEN :steps
                 ELSE substr(steps, 1, length(steps) - 1) || ',' || substr(:steps, 2) END,
    saga  = coalesce(:saga, saga)
WHERE id = :id AND token = :token

-- name: job_is_held
-- Return whether a job runs under this fence.
SELECT 1 FROM jobs WHERE id = :job AND token = :token

-- name: begin_stream
-- Note that a job streams; the first chunks of an attempt renew that.
INSERT INTO streams (job, checked_at) VALUES (:job, :now)
ON CONFLICT (job) DO UPDATE SET checked_at = excluded.checked_at WHERE :offset = 0

-- name: replace_chunks
-- Delete what earlier attempts have streamed and this one streams again.
DELETE FROM stream_chunks WHERE job = :job AND attempt < :attempt AND steps >= :resumed

-- name: stream_append
-- Add chunks to a stream, unless they are there.
INSERT INTO stream_chunks (job, attempt, last, steps, total, chunks)
SELECT :job, :attempt,
       coalesce((SELECT max(last) FROM stream_chunks
                 WHERE job = :job AND attempt < :attempt), 0) + :offset + :count,
       :steps,
       coalesce((SELECT total FROM stream_chunks
                 WHERE job = :job ORDER BY attempt DESC, last DESC LIMIT 1), 0) + :size,
       :chunks
WHERE true
ON CONFLICT (job, attempt, last) DO NOTHING

-- name: stream_end
-- Return how many chunks and bytes a stream has.
SELECT last, total FROM stream_chunks WHERE job = ? ORDER BY attempt DESC, last DESC LIMIT 1

-- name: job_is_live
-- Return whether a job has not ended.
SELECT 1 FROM jobs WHERE id = ? AND state IN ('scheduled', 'pending', 'running')

-- name: stream_read
-- Return the chunks of a stream after a position.
SELECT attempt, last, chunks FROM stream_chunks
WHERE job = :job AND (attempt, last) > (:attempt, :number) ORDER BY attempt, last LIMIT :limit

-- name: record_progress
-- Record the progress of a running job, under its fence.
UPDATE jobs SET progress = ? WHERE id = ? AND token = ?

-- name: promote_jobs
-- Make scheduled jobs that are due pending, earliest first; those that wait for an event, too.
UPDATE jobs SET state = 'pending', waiting_for = NULL
WHERE seq IN (
    SELECT seq FROM jobs
    WHERE state = 'scheduled' AND (waiting_for IS NULL OR substr(waiting_for, 1, 6) = 'event:')
      AND due_at <= ?
    ORDER BY due_at, seq LIMIT ?
)

-- name: recall_pending
-- Place pending jobs from before a step back of the clock right before those that came since. A job
-- is from before the step if it is ahead of the clock, or arrived before such a job. Every worker
-- does this when it starts, so jobs are looked for at the end of each lane, where there are none: a
-- look at all pending jobs would grow with them. Lanes are walked as in sweep_heads.
UPDATE jobs SET due_at = :begin - late.number
FROM (
    WITH RECURSIVE heads (seq) AS (
        SELECT * FROM (SELECT seq FROM jobs WHERE state = 'pending'
                       ORDER BY queue, kind, priority, key, due_at LIMIT 1)
        UNION ALL
        SELECT coalesce(
            (SELECT seq FROM jobs AS next
             WHERE next.state = 'pending' AND next.queue = here.queue AND next.kind = here.kind
               AND next.priority = here.priority AND next.key > here.key
             ORDER BY next.key, next.due_at LIMIT 1),
            (SELECT seq FROM jobs AS next
             WHERE next.state = 'pending' AND next.queue = here.queue AND next.kind = here.kind
               AND next.priority > here.priority
             ORDER BY next.priority, next.key, next.due_at LIMIT 1),
            (SELECT seq FROM jobs AS next
             WHERE next.state = 'pending' AND next.queue = here.queue AND next.kind > here.kind
             ORDER BY next.kind, next.priority, next.key, next.due_at LIMIT 1),
            (SELECT seq FROM jobs AS next
             WHERE next.state = 'pending' AND next.queue > here.queue
             ORDER BY next.queue, next.kind, next.priority, next.key, next.due_at LIMIT 1))
        FROM heads JOIN jobs AS here USING (seq)
    ), ahead AS (
        SELECT later.seq, later.due_at,
               max(later.seq) FILTER (WHERE later.due_at > :ahead) OVER (PARTITION BY heads.seq)
                   AS last_seq
        -- Cross joins keep this order: lane by lane.
        FROM heads CROSS JOIN jobs AS lane ON lane.seq = heads.seq
        CROSS JOIN jobs AS later ON later.state = 'pending' AND later.queue = lane.queue
            AND later.kind = lane.kind AND later.priority = lane.priority AND later.key = lane.key
            AND later.due_at > :begin
    )
    SELECT seq, row_number() OVER (ORDER BY due_at DESC, seq DESC) AS number
    FROM ahead WHERE seq <= last_seq
) AS late
WHERE jobs.seq = late.seq

-- name: recall_retries
-- Make retries and snoozes due sooner by the step that the clock was set back.
UPDATE jobs SET due_at = max(due_at - :by, :now)
WHERE state = 'scheduled' AND waiting_for IS NULL AND due_at > :retries_from
  AND reason IN (SELECT value FROM json_each(:spans))

-- name: lane_is_ahead
-- Return whether a pending job of a lane is placed after a moment.
SELECT EXISTS (SELECT 1 FROM jobs WHERE state = 'pending' AND queue = :queue AND kind = :kind
               AND priority = :priority AND key = :key AND due_at > :ahead)

-- name: unpark_jobs
-- Unpark the jobs that wait for something; an event makes them due.
UPDATE jobs SET
    due_at = CASE WHEN substr(waiting_for, 1, 6) = 'event:' THEN min(due_at, :now)
                  ELSE due_at END,
    state  = CASE WHEN due_at <= :now OR substr(waiting_for, 1, 6) = 'event:' THEN 'pending'
                  ELSE state END,
    waiting_for = NULL
WHERE waiting_for = :waiting_for AND state = 'scheduled'

-- name: register_worker
-- Begin a worker's lease.
INSERT INTO workers (id, info, pulse, lease, started_at, last_seen, since, lease_until)
VALUES (:id, :info, :pulse, :lease, :now, :now, :now, :now + :lease)
ON CONFLICT (id) DO UPDATE SET
    info = excluded.info, pulse = excluded.pulse, lease = excluded.lease,
    started_at = excluded.started_at, last_seen = excluded.last_seen, since = excluded.since,
    lease_until = excluded.lease_until, ended = 0

-- name: renew_lease
-- Renew a lease that was not ended; after a gap longer than the lease, `since` starts again.
UPDATE workers SET
    since       = CASE WHEN :now - last_seen > lease OR :now < since THEN :now ELSE since END,
    pulse       = :pulse,
    last_seen   = :now,
    lease_until = :now + lease
WHERE id = :id AND NOT ended

-- name: worker_is_live
-- Return whether a worker's lease is live. A lease that was renewed in the future, before the clock
-- was set back, is not: it would last for as long as the clock went back.
SELECT 1 FROM workers
WHERE id = :id AND NOT ended AND lease_until > :now AND last_seen <= :now + lease

-- name: worker_may_rescue
-- Return whether a worker's lease is live, and has been for a whole lease without a gap.
SELECT 1 FROM workers
WHERE id = :id AND NOT ended AND lease_until > :now AND last_seen <= :now + lease
  AND :now - since >= lease

-- name: end_lease
-- End a worker's lease for good.
UPDATE workers SET ended = 1 WHERE id = ?

-- name: rescue_is_due
-- Return, without writing, whether there is a lease to end or a job to rescue.
SELECT EXISTS (SELECT 1 FROM workers
               WHERE NOT ended AND (lease_until <= :now OR last_seen > :now + lease))
    OR EXISTS (SELECT 1 FROM jobs WHERE state = 'running'
               AND worker NOT IN (SELECT id FROM workers WHERE NOT ended))

-- name: end_expired_leases
-- Before anything is rescued, end every lease that ran out, so that a late renewal fails.
UPDATE workers SET ended = 1
WHERE NOT ended AND (lease_until <= :now OR last_seen > :now + lease)

-- name: orphaned_jobs
-- List running jobs whose worker has no live lease, or is unknown.
SELECT * FROM jobs INDEXED BY jobs_held
WHERE state = 'running' AND worker NOT IN (SELECT id FROM workers WHERE NOT ended)
ORDER BY seq LIMIT ?

-- name: take_over_job
-- Put a job under a rescuer's lease and a new fence.
UPDATE jobs SET worker = ?, token = ? WHERE id = ?

-- name: held_seqs
-- Return the numbers of the running jobs of a worker.
SELECT seq FROM jobs WHERE worker = ? AND state = 'running'

-- name: held_jobs
-- List the running jobs of a worker.
SELECT * FROM jobs INDEXED BY jobs_held WHERE state = 'running' AND worker = ?

-- name: cancel_requests
-- List the running jobs of a worker that have a cancel request.
SELECT id FROM jobs WHERE state = 'running' AND worker = ? AND cancel_requested = 1

-- name: prune_is_due
-- Return, without writing, whether anything is past its retention.
SELECT EXISTS (SELECT 1 FROM jobs WHERE state = 'completed' AND finished_at < :finished)
    OR EXISTS (SELECT 1 FROM jobs WHERE state = 'cancelled' AND finished_at < :finished)
    OR EXISTS (SELECT 1 FROM jobs WHERE state = 'dead' AND finished_at < :dead AND saga IS NOT 'undoing')
    OR EXISTS (SELECT 1 FROM unique_keys WHERE until <= :now)
    OR EXISTS (SELECT 1 FROM done_keys WHERE at < :finished)
    OR EXISTS (SELECT 1 FROM streams WHERE checked_at < :streams)
    OR EXISTS (SELECT 1 FROM workers WHERE ended AND last_seen < :workers)

-- name: prune_jobs
-- Delete the oldest jobs of a state that are past their retention, except those not undone yet.
DELETE FROM jobs WHERE seq IN (
    SELECT seq FROM jobs WHERE state = ? AND finished_at < ? AND saga IS NOT 'undoing'
    ORDER BY finished_at LIMIT ?
)

-- name: prune_unique_keys
-- Delete keys whose time is over.
DELETE FROM unique_keys WHERE until <= ?

-- name: prune_done_keys
-- Delete keys that were done before an instant.
DELETE FROM done_keys WHERE at < ?

-- name: old_streams
-- Return streams whose jobs may have ended long ago: whether it is so, and else when to look again.
SELECT streams.job, jobs.id IS NULL OR jobs.finished_at < :streams, coalesce(jobs.finished_at, :now)
FROM streams LEFT JOIN jobs ON jobs.id = streams.job
WHERE checked_at < :streams ORDER BY checked_at LIMIT :limit

-- name: delete_stream
-- Delete a stream; a trigger deletes its chunks.
DELETE FROM streams WHERE job = ?

-- name: check_stream
-- Note that a stream was looked at.
UPDATE streams SET checked_at = ? WHERE job = ?

-- name: prune_workers
-- Delete workers that ended long ago.
DELETE FROM workers WHERE ended AND last_seen < ?

-- name: read_records
-- Return the records whose names lie in a range.
SELECT name, value FROM records WHERE name >= ? AND name < ?

-- name: read_last_records
-- Return the last records whose names lie in a range, in descending order.
SELECT name, value FROM records WHERE name >= ? AND name < ? ORDER BY name DESC LIMIT ?

-- name: read_record
-- Return one record.
SELECT value FROM records WHERE name = ?

-- name: write_record
-- Set a record.
INSERT INTO records (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: set_alarm
-- Set or remove the alarm of a record.
UPDATE records SET alarm = ? WHERE name = ?

-- name: ringing_records
-- Return records whose alarm is due, the earliest first.
SELECT name, value FROM records WHERE alarm <= ? ORDER BY alarm, name LIMIT ?

-- name: next_alarm
-- Return when the next alarm is due, apart from those of some records.
SELECT alarm FROM records
WHERE alarm IS NOT NULL AND name NOT IN (SELECT value FROM json_each(?)) ORDER BY alarm LIMIT 1

-- name: send_news
-- Keep a piece of news until a worker hears it.
INSERT INTO news (topic, id, body, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING

-- name: news_topics
-- Return topics that have news.
SELECT DISTINCT topic FROM news LIMIT ?

-- name: read_news
-- Return the news of topics, the oldest first.
SELECT topic, id, body, at FROM news
WHERE topic IN (SELECT value FROM json_each(?)) ORDER BY at, id LIMIT ?

-- name: forget_news
-- Delete a piece of news.
DELETE FROM news WHERE topic = ? AND id = ?

-- name: delete_record
-- Remove a record.
DELETE FROM records WHERE name = ?

-- name: get_job
-- Return one job.
SELECT * FROM jobs WHERE id = ?

-- name: get_jobs
-- Return some jobs.
SELECT * FROM jobs WHERE id IN (SELECT value FROM json_each(?))

-- name: done_job
-- Return the job that was completed with an idempotency key, if it is still kept.
SELECT * FROM jobs WHERE id = (SELECT job FROM done_keys WHERE kind = ? AND key = ?)

-- name: write_move
-- Store a job after a verb that changed it.
UPDATE jobs SET
    state = :state, due_at = :due_at, expires_at = :expires_at, started_at = :started_at,
    finished_at = :finished_at, failures = :failures, crashes = :crashes, worker = :worker,
    waiting_for = :waiting_for, cancel_requested = :cancel_requested, reason = :reason,
    payload = :payload, steps = :steps, saga = :saga
WHERE id = :id

-- name: take_job
-- Start a job under a worker's lease.
UPDATE jobs SET state = 'running', attempt = attempt + 1, worker = :worker, token = :token,
                started_at = :now, progress = NULL
WHERE id = :id

-- name: delete_job
-- Remove a job.
DELETE FROM jobs WHERE id = ?

-- name: find_jobs
-- List jobs, newest first; in brief, without the fields that may be large.
SELECT seq, id, kind, queue, priority, key, state, iif(:brief, '{}', payload), due_at, created_at,
       expires_at, started_at, finished_at, attempt, failures, crashes, max_retries, timeout,
       unique_key, iif(:brief, NULL, headers), waiting_for, worker, token, cancel_requested,
       progress, iif(:brief, NULL, result), error, reason, iif(:brief, '[]', history),
       iif(:brief, '[]', steps), saga
FROM jobs
WHERE id BETWEEN :first AND :last
  AND (:ending IS NULL OR substr(replace(id, '-', ''), -length(:ending)) = :ending)
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
  AND (:kind IS NULL OR kind = :kind)
  AND (:queue IS NULL OR queue = :queue)
  AND (:worker IS NULL OR worker = :worker)
  AND (:key IS NULL OR key = :key)
  AND (:fingerprint IS NULL OR coalesce(error ->> 'fingerprint', '') = :fingerprint)
  AND (:error IS NULL
       OR instr((error ->> 'type') || ': ' || (error ->> 'message'), :error) > 0)
  AND (:older_than IS NULL OR created_at < :older_than)
  AND (:newer_than IS NULL OR created_at >= :newer_than)
  AND (:created_since IS NULL OR created_at >= :created_since)
  AND (:created_before IS NULL OR created_at < :created_before)
  {terms}
ORDER BY id DESC LIMIT :limit

-- name: find_edge
-- Return the last id of the next slice of jobs; nothing if there are fewer.
SELECT id FROM jobs WHERE id BETWEEN :first AND :last ORDER BY id DESC LIMIT 1 OFFSET :rows - 1

-- name: error_groups
-- List the errors of dead jobs, each with the newest job that died of it.
SELECT found.fingerprint, found.kind, number, first_seen, last_seen, newest, error, reason
FROM (SELECT coalesce(error ->> 'fingerprint', '') AS fingerprint, kind, count(*) AS number,
             min(finished_at) AS first_seen, max(finished_at) AS last_seen, max(id) AS newest
      FROM (SELECT id, kind, error, finished_at FROM jobs INDEXED BY jobs_finished
            WHERE state = 'dead' AND finished_at IS NOT NULL
            ORDER BY finished_at DESC LIMIT :most)
      WHERE :kind IS NULL OR kind = :kind
      GROUP BY 1, 2 ORDER BY number DESC, kind, fingerprint LIMIT :limit) AS found
JOIN jobs ON jobs.id = newest
ORDER BY number DESC, found.kind, found.fingerprint

-- name: last_grouped
-- Return when the last of the dead jobs died that are not looked at for their errors.
SELECT finished_at FROM jobs INDEXED BY jobs_finished
WHERE state = 'dead' AND finished_at IS NOT NULL
ORDER BY finished_at DESC LIMIT 1 OFFSET :most

-- name: count_finished
-- Count the finished jobs that ended last by queue and state.
SELECT queue, state, count(*)
FROM (SELECT * FROM (SELECT queue, state FROM jobs INDEXED BY jobs_finished
                     WHERE state = 'completed' AND finished_at IS NOT NULL
                     ORDER BY finished_at DESC LIMIT :most + 1)
      UNION ALL
      SELECT * FROM (SELECT queue, state FROM jobs INDEXED BY jobs_finished
                     WHERE state = 'cancelled' AND finished_at IS NOT NULL
                     ORDER BY finished_at DESC LIMIT :most + 1))
GROUP BY queue, state

-- name: oldest_scheduled
-- Return the due time of the oldest scheduled job of each queue, as far as they were counted.
SELECT queue, min(due_at)
FROM (SELECT * FROM (SELECT queue, due_at FROM jobs INDEXED BY jobs_due
                     WHERE state = 'scheduled'
                       AND (waiting_for IS NULL OR substr(waiting_for, 1, 6) = 'event:')
                     ORDER BY due_at LIMIT :most)
      UNION ALL
      SELECT * FROM (SELECT queue, due_at FROM jobs INDEXED BY jobs_parked
                     WHERE waiting_for IS NOT NULL AND substr(waiting_for, 1, 6) <> 'event:'
                       AND state = 'scheduled'
                     LIMIT :most))
GROUP BY queue

-- name: standing
-- Count the jobs that are ahead of one in its queue, and those that ended there since it was due,
-- or recently; with when that was, and the first job of its lane.
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM jobs AS other
            WHERE other.state = 'pending' AND other.queue = own.queue
              AND (other.due_at - other.priority * :step, other.seq)
                  < (own.due_at - own.priority * :step, own.seq)
            LIMIT :limit)),
       (SELECT count(*) FROM jobs AS ended
        WHERE ended.state IN ('completed', 'dead', 'cancelled') AND ended.queue = own.queue
          AND ended.finished_at > max(:since, own.due_at)),
       max(:since, own.due_at, coalesce((
            SELECT min(ended.started_at) FROM jobs AS ended
            WHERE ended.state IN ('completed', 'dead', 'cancelled') AND ended.queue = own.queue
              AND ended.finished_at > max(:since, own.due_at)), :since)),
       (SELECT head.id FROM jobs AS head
        WHERE head.state = 'pending' AND head.queue = own.queue AND head.kind = own.kind
          AND head.priority = own.priority AND head.key = own.key
        ORDER BY head.due_at, head.seq LIMIT 1)
FROM jobs AS own WHERE own.id = :id

-- name: depths
-- Count jobs that are not finished by queue and state, in bounded time: the pending jobs of each
-- queue along their index, the others up to a number of each state.
WITH RECURSIVE queues (queue) AS (
    SELECT min(queue) FROM jobs WHERE state = 'pending'
    UNION ALL
    SELECT (SELECT min(jobs.queue) FROM jobs
            WHERE state = 'pending' AND jobs.queue > queues.queue)
    FROM queues WHERE queues.queue IS NOT NULL
    LIMIT :queues
), known AS MATERIALIZED (
    SELECT queue FROM queues WHERE queue IS NOT NULL
)
SELECT queue, 'pending' AS state,
       (SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_lanes
                              WHERE state = 'pending' AND jobs.queue = known.queue
                              LIMIT max(:most / (SELECT count(*) FROM known), 1) + 1))
FROM known
UNION ALL
SELECT queue, 'running', count(*)
FROM (SELECT queue FROM jobs INDEXED BY jobs_held WHERE state = 'running' LIMIT :most + 1)
GROUP BY queue
UNION ALL
SELECT queue, 'scheduled', count(*)
FROM (SELECT queue FROM jobs INDEXED BY jobs_due
      WHERE state = 'scheduled' AND (waiting_for IS NULL OR substr(waiting_for, 1, 6) = 'event:')
      UNION ALL
      SELECT queue FROM jobs INDEXED BY jobs_parked
      WHERE waiting_for IS NOT NULL AND substr(waiting_for, 1, 6) <> 'event:'
        AND state = 'scheduled'
      LIMIT :most + 1)
GROUP BY queue
UNION ALL
SELECT queue, 'dead', count(*)
FROM (SELECT queue FROM jobs INDEXED BY jobs_finished
      WHERE state = 'dead' AND finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT :most + 1)
GROUP BY queue

-- name: arrivals
-- Count the jobs by queue whose ids are within bounds, in bounded time.
SELECT queue, count(*)
FROM (SELECT queue FROM jobs WHERE id >= :since AND id < :until LIMIT :most + 1)
GROUP BY queue

-- name: list_workers
-- Return the known workers, newest first.
SELECT info, pulse, started_at, last_seen, lease_until,
       NOT ended AND lease_until > :now AND last_seen <= :now + lease, ended
FROM workers ORDER BY started_at DESC, id
