CREATE OR REPLACE FUNCTION refuse(misfit text[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION '%', misfit[1] USING ERRCODE = 'invalid_parameter_value', HINT = misfit[2];
END $$;
COMMENT ON FUNCTION refuse(text[]) IS 'Raises an error, with the remedy as its hint.';
