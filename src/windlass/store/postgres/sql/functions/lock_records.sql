CREATE OR REPLACE FUNCTION lock_records(names text[], OUT name text, OUT value json) RETURNS SETOF record
LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
-- Lock records until the end of the transaction, and return them. A missing record is inserted
-- without a value: no other transaction sees it, and those that want it wait. The caller deletes
-- it, or gives it a value. Rows are locked, since every role may take every advisory lock. In the
-- order of names, before anything else of the transaction, so that no two can deadlock.
DECLARE
    wanted text;
BEGIN
    FOR wanted IN SELECT DISTINCT each COLLATE "C" AS each FROM unnest(names) AS each ORDER BY each LOOP
        LOOP
            SELECT records.name, records.value INTO name, value
            FROM records WHERE records.name = wanted FOR UPDATE;
            EXIT WHEN FOUND;
            INSERT INTO records (name, value) VALUES (wanted, 'null') ON CONFLICT DO NOTHING;
            IF FOUND THEN
                name := wanted;
                value := NULL;
                EXIT;
            END IF;
            -- Inserted by another transaction meanwhile: it exists now, unless it was deleted
            -- again.
        END LOOP;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION lock_records(text[]) IS
    'Locks records, whether they exist or not; returns them, missing ones without a value.';
