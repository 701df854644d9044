CREATE OR REPLACE FUNCTION enqueue(job json) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
DECLARE
    known  text[] := '{kind,payload,queue,priority,key,delay,at,expires_in,expires_at,max_retries,timeout,unique,unique_until,unique_scope,on_duplicate,headers,id}';
    misfit text[] := draft_misfit(job, known, false);
    answer uuid;
BEGIN
    IF misfit IS NOT NULL THEN
        PERFORM refuse(misfit);
    END IF;
    -- Refused here: one job with a NUL in it would make all of job_queue unreadable.
    PERFORM job::jsonb;
    SELECT id INTO answer FROM enqueue_many(json_build_array(json_build_object(
        'id', job -> 'id', 'kind', job -> 'kind', 'payload', job -> 'payload',
        'queue', job -> 'queue', 'priority', job -> 'priority', 'key', job -> 'key',
        'delay', job -> 'delay', 'at', job -> 'at', 'expires_in', job -> 'expires_in',
        'expires_at', job -> 'expires_at', 'max_retries', job -> 'max_retries',
        'timeout', job -> 'timeout', 'headers', job -> 'headers',
        -- A key gets the same scope, and is held for as long, as with `using(unique=...)`.
        'unique', CASE coalesce(job ->> 'unique_scope', 'kind')
                  WHEN 'kind' THEN job ->> 'kind'
                  WHEN 'queue' THEN ':queue:' || coalesce(job ->> 'queue', 'default')
                  ELSE ':global' END || ':' || (job ->> 'unique'),
        'unique_until', coalesce(job ->> 'unique_until', CASE
            WHEN job ->> 'on_duplicate' IN ('replace', 'push', 'supersede') THEN 'claimed' END),
        'on_duplicate', job -> 'on_duplicate')));
    RETURN answer;
END $$;
COMMENT ON FUNCTION enqueue(json) IS
    'Adds one job, in the caller''s transaction; returns its id, or the existing one''s.';
