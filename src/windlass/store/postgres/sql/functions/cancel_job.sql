CREATE OR REPLACE FUNCTION cancel_job(job jobs, why text, now timestamptz) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
BEGIN
    job.state := 'cancelled';
    job.reason := why;
    job.updated_at := now;
    PERFORM finish(job, now, NULL);
END $$;
COMMENT ON FUNCTION cancel_job(jobs, text, timestamptz) IS
    'Moves a waiting job that was cancelled to the finished jobs.';
