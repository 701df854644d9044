CREATE OR REPLACE FUNCTION wake(queues text[], kinds text[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
-- Notify as many sleepers as there are jobs for them. A busy worker finds its jobs by itself, so
-- under load there is no NOTIFY, whose lock every commit of the server would queue for. Behind the
-- ids of the sleepers are the names of the queues, if they are few: a sleeper for which it would
-- take long to look at all lanes looks at theirs.
DECLARE
    woken text;
    names text[];
BEGIN
    SELECT string_agg(chosen.id, ' ') INTO woken FROM (
        SELECT s.id FROM sleepers AS s
        WHERE s.until > clock() AND EXISTS (
            SELECT FROM unnest(wake.queues, wake.kinds) AS new (queue, kind)
            WHERE (s.queues IS NULL OR new.queue = ANY (s.queues))
              AND (s.others IS NULL OR new.queue <> ALL (s.others))
              AND (s.kinds IS NULL OR new.kind = ANY (s.kinds)))
        ORDER BY EXISTS (SELECT FROM workers AS w
                         WHERE w.id = s.worker AND NOT w.ended AND w.lease_until > clock()) DESC,
                 random()
        LIMIT least(cardinality(wake.queues), 200)
    ) AS chosen;
    -- A transaction with a NOTIFY cannot be prepared; users of two-phase commit turn wake-ups off.
    IF woken IS NOT NULL AND coalesce(current_setting('windlass.wake', true), '') <> 'off' THEN
        names := ARRAY(SELECT DISTINCT queue COLLATE "C" FROM unnest(wake.queues) AS new (queue)
                       ORDER BY 1 LIMIT 21);
        IF cardinality(names) < 21 AND octet_length(array_to_json(names)::text) < 4000 THEN
            woken := woken || ' ' || array_to_json(names)::text;
        END IF;
        PERFORM pg_notify({channel}, woken);
    END IF;
END $$;
COMMENT ON FUNCTION wake(text[], text[]) IS 'Notifies sleepers of new jobs in these queues.';
