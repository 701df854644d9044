CREATE OR REPLACE FUNCTION is_member(job uuid) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS 'SELECT get_byte(uuid_send(job), 6) >> 4 = 8';
COMMENT ON FUNCTION is_member(uuid) IS
    'Returns whether a job belongs to a flow: then its id is a UUIDv8.';
