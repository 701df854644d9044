CREATE OR REPLACE FUNCTION option_misfit(
    its_delay interval, its_at timestamptz, its_expires_in interval, its_expires_at timestamptz,
    its_unique text, its_unique_until text, its_on_duplicate text, its_waiting_for text
) RETURNS text[] LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, {schema}, pg_temp
AS $$
-- Do the same for the options that only some jobs have.
DECLARE
    longest  interval := '36525 days';
    earliest timestamptz := '0001-01-01 00:00+00';
    latest   timestamptz := '9999-12-31 23:59:59.999999+00';
BEGIN
    RETURN CASE
        WHEN its_delay NOT BETWEEN '0' AND longest THEN ARRAY[
            'delay must be between 0 and 36525 days, got ' || quoted(to_json(its_delay::text)),
            'write it like "10 minutes"']
        WHEN its_expires_in NOT BETWEEN '0' AND longest THEN ARRAY[
            'expires_in must be between 0 and 36525 days, got '
                || quoted(to_json(its_expires_in::text)), 'write it like "1 day"']
        WHEN its_at NOT BETWEEN earliest AND latest THEN ARRAY[
            'at must be a time in the years 1 to 9999, got ' || quoted(to_json(its_at::text)),
            'write it like "2030-01-31 12:00+00"']
        WHEN its_expires_at NOT BETWEEN earliest AND latest THEN ARRAY[
            'expires_at must be a time in the years 1 to 9999, got '
                || quoted(to_json(its_expires_at::text)), 'write it like "2030-01-31 12:00+00"']
        WHEN btrim(its_unique) = '' OR length(its_unique) > 500 OR its_unique ~ '[[:cntrl:]]' THEN ARRAY[
            'unique must be 1 to 500 characters in one line, got ' || quoted(to_json(its_unique)),
            'shorten it, or leave it out']
        WHEN its_unique_until NOT IN ('claimed', 'settled')
             AND its_unique_until::interval NOT BETWEEN '1 microsecond' AND longest THEN ARRAY[
            'unique_until must be claimed, settled or a span of up to 36525 days, got '
                || quoted(to_json(its_unique_until)), 'write it like "1 day"']
        WHEN its_on_duplicate NOT IN ('keep', 'replace', 'push', 'supersede') THEN ARRAY[
            'on_duplicate must be keep, replace, push or supersede, got '
                || quoted(to_json(its_on_duplicate)), 'leave it out to keep what there is']
        WHEN length(its_waiting_for) > 500 THEN ARRAY[
            'waiting_for must be at most 500 characters, got ' || length(its_waiting_for), 'shorten it']
    END;
END $$;
COMMENT ON FUNCTION option_misfit(interval, timestamptz, interval, timestamptz, text, text, text, text) IS
    'Returns what is wrong with the rarer options of a job that a producer sent, and the remedy.';
