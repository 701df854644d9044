CREATE OR REPLACE FUNCTION new_id(moment timestamptz) RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
    SELECT encode(set_bit(set_bit(overlay(
        uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM moment) * 1000)::bigint) FROM 3)
        FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;
COMMENT ON FUNCTION new_id(timestamptz) IS 'Makes a UUIDv7: random, and sorted by age.';
