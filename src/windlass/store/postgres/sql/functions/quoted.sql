CREATE OR REPLACE FUNCTION quoted(value json) RETURNS text LANGUAGE sql IMMUTABLE
AS $$
    -- Format a value for the message that rejects it; long values are cut.
    SELECT CASE WHEN value IS NULL THEN 'nothing' WHEN length(value::text) <= 60 THEN value::text
           ELSE left(value::text, 60) || '…' END
$$;
COMMENT ON FUNCTION quoted(json) IS 'Formats a value for a message.';
