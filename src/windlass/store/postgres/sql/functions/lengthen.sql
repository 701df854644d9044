CREATE OR REPLACE FUNCTION lengthen(history json, attempt json) RETURNS json LANGUAGE sql IMMUTABLE
AS $$
    SELECT (CASE WHEN jsonb_array_length(coalesce(history::jsonb, '[]')) < 100
                 THEN coalesce(history::jsonb, '[]') ELSE history::jsonb - 0 END
            || jsonb_build_array(attempt::jsonb))::json
$$;
COMMENT ON FUNCTION lengthen(json, json) IS 'Adds an attempt to a history of at most 100.';
