CREATE OR REPLACE FUNCTION fingerprint_of(error json) RETURNS text LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
-- An error whose text holds what PostgreSQL cannot read, like NUL, has none: its job dies all the
-- same.
BEGIN
    RETURN coalesce(error ->> 'fingerprint', '');
EXCEPTION WHEN OTHERS THEN
    RETURN '';
END $$;
COMMENT ON FUNCTION fingerprint_of(json) IS 'Returns the fingerprint of an error, or an empty text.';
