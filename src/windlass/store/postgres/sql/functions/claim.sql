-- The planner settings pin the plan, whatever the statistics, cached plans and flags of the server:
-- it walks the indexes of jobs, in their order.
CREATE OR REPLACE FUNCTION claim(
    holder text, fence bigint, queues text[], kinds text[], priorities integer[], keys text[],
    floors timestamptz[], floor_seqs bigint[], draws integer[], budgets integer[],
    asked_lanes integer[], counts integer[], lazily boolean
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
-- Start the oldest jobs of lanes under a live lease, ask by ask, each from the floor of its lane on,
-- and never more than its budgets hold (draws has a bit for each). An ask is the number of a lane
-- and a count; one for the rest of a lane that gave less than it could is passed over. A lost claim
-- only runs again, so its commit need not wait for the disk, except in a transaction that also
-- acknowledges. Return, for each job, the number of its ask and the columns that the ask does not
-- imply; fields that only some jobs have are one JSON value, or NULL. A negative count asks for the
-- oldest job of a lane whose jobs must not overtake each other: for none if that row is locked, or
-- if a job is ahead of the clock. In that case the clock was set back, and younger jobs seem older
-- until a worker recalls the others.
DECLARE
    now     timestamptz := clock();
    lane    integer;
    room    integer;
    taken   integer;
    is_dry  boolean[] := '{}';
BEGIN
    IF NOT EXISTS (SELECT FROM workers WHERE id = holder AND NOT ended AND lease_until > now
                   AND last_seen <= now + lease) THEN
        RETURN;
    END IF;
    IF lazily THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    FOR ask IN 1 .. cardinality(asked_lanes) LOOP
        lane := asked_lanes[ask];
        CONTINUE WHEN is_dry[lane];
        room := CASE WHEN counts[ask] < 0 THEN 1 ELSE counts[ask] END;
        FOR budget IN 1 .. cardinality(budgets) LOOP
            IF draws[lane] & (1 << (budget - 1)) <> 0 THEN
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
                WHERE state = 'pending' AND queue = queues[lane] AND kind = kinds[lane]
                  AND priority = priorities[lane] AND key = keys[lane]
                ORDER BY due_at, seq LIMIT 1)
              AND NOT EXISTS (
                SELECT FROM jobs
                WHERE state = 'pending' AND queue = queues[lane] AND kind = kinds[lane]
                  AND priority = priorities[lane] AND key = keys[lane]
                  AND due_at > now + interval '2 seconds')
            FOR UPDATE SKIP LOCKED)
        ELSE ARRAY(
            SELECT ctid FROM jobs
            WHERE state = 'pending' AND queue = queues[lane] AND kind = kinds[lane]
              AND priority = priorities[lane] AND key = keys[lane]
              AND (due_at, seq) >= (floors[lane], floor_seqs[lane])
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
        is_dry[lane] := taken < room;
        FOR budget IN 1 .. cardinality(budgets) LOOP
            IF draws[lane] & (1 << (budget - 1)) <> 0 THEN
                budgets[budget] := budgets[budget] - taken;
            END IF;
        END LOOP;
    END LOOP;
    IF EXISTS (SELECT FROM unique_keys WHERE frees_on_claim AND until IS NULL) THEN
        DELETE FROM unique_keys WHERE frees_on_claim AND until IS NULL AND job = ANY (ARRAY(
            SELECT id FROM jobs WHERE state = 'running' AND worker = holder AND token = fence));
    END IF;
END $$;
COMMENT ON FUNCTION claim(text, bigint, text[], text[], integer[], text[], timestamptz[], bigint[],
                          integer[], integer[], integer[], integer[], boolean) IS
    'Starts pending jobs under a worker''s lease.';
