-- Without a search path of its own, so that the planner inlines it: a call would take longer than
-- the checks themselves. The functions that call it pin theirs.
CREATE OR REPLACE FUNCTION text_misfit(document text, largest integer) RETURNS text[] LANGUAGE sql STABLE
AS $$
    -- Return what is wrong with JSON that a producer sent, and the remedy; NULL if nothing is.
    SELECT CASE
        WHEN octet_length(document) > largest THEN ARRAY[
            format('%s bytes are too many, the limit is %s', octet_length(document), largest),
            'store the object elsewhere, and send its id']
        WHEN strpos(document, '\u0000') > 0 AND document ~ '(^|[^\\])(\\\\)*\\u0000' THEN ARRAY[
            'a NUL character cannot be stored', 'leave it out']
        -- Few documents have that many brackets, and only those need the closer look.
        WHEN octet_length(document) > 400
            AND octet_length(document) - octet_length(replace(replace(document, '[', ''), '{', '')) > 200
            AND jsonb_path_exists(document::jsonb,
                'strict $.**{200 to last} ? (@.type() == "object" || @.type() == "array")') THEN ARRAY[
            'it is nested more than 200 levels deep', 'make it flatter']
    END
$$;
COMMENT ON FUNCTION text_misfit(text, integer) IS
    'Returns what is wrong with JSON that a producer sent, and the remedy.';
