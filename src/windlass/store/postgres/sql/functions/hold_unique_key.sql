CREATE OR REPLACE FUNCTION hold_unique_key(
    unique_key text, new_job uuid, on_claim boolean, held_until timestamptz
) RETURNS uuid LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
-- Give a free key to a job, or return its holder. The second of two requests waits for the first
-- one's commit.
DECLARE
    holder uuid;
BEGIN
    LOOP
        INSERT INTO unique_keys (key, job, frees_on_claim, until)
        VALUES (unique_key, new_job, on_claim, held_until)
        ON CONFLICT (key) DO NOTHING
        RETURNING job INTO holder;
        IF holder IS NULL THEN
            -- Only an expired key is locked: a held key is freed by a worker, which must not wait
            -- for a producer that only reads the holder.
            UPDATE unique_keys
            SET job = new_job, frees_on_claim = on_claim, until = held_until
            WHERE key = unique_key AND until <= clock()
            RETURNING job INTO holder;
        END IF;
        IF holder IS NULL THEN
            SELECT job INTO holder FROM unique_keys WHERE key = unique_key;
        END IF;
        -- The row is gone: it was freed between the two statements.
        IF holder IS NOT NULL THEN
            RETURN holder;
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION hold_unique_key(text, uuid, boolean, timestamptz) IS
    'Gives a free unique key to a job; returns its holder.';
