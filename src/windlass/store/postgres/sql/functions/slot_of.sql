CREATE OR REPLACE FUNCTION slot_of(moment timestamptz) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS 'SELECT ((floor(extract(epoch FROM moment) / 86400)::bigint % 32 + 32) % 32)::smallint';
COMMENT ON FUNCTION slot_of(timestamptz) IS 'Returns the slot of the ring for a moment.';
