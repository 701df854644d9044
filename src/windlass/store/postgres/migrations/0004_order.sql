-- What a strict order needs of a claim: a head that is locked is waited for, and not passed over.
-- Served by every release that knows schema 1 or newer: oldest 1.

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
