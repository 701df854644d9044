-- A trigger is run for every job that its statement changes, and a claim ends none: so both look at
-- the time at which a job ended, which every statement that ends one sets, and first at what most
-- jobs do not have.

DROP TRIGGER jobs_done;
DROP TRIGGER jobs_ended;

-- Every statement that completes a job records its key in the same transaction. Another job takes
-- the key over only after the first one was pruned.
CREATE TRIGGER jobs_done AFTER UPDATE OF finished_at ON jobs
WHEN new.headers IS NOT NULL AND new.state = 'completed'
     AND length(json_extract(new.headers, '$."idempotency-key"')) BETWEEN 1 AND 200
BEGIN
    INSERT INTO done_keys (kind, key, job, at)
    VALUES (new.kind, json_extract(new.headers, '$."idempotency-key"'), new.id, new.finished_at)
    ON CONFLICT (kind, key) DO UPDATE SET job = excluded.job, at = excluded.at
        WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE id = done_keys.job);
END;

-- Every statement that ends a job of a flow sends news to the flow in the same transaction. The id
-- of such a job is a UUIDv8 that differs from the flow's id in the last five digits only.
CREATE TRIGGER jobs_ended AFTER UPDATE OF finished_at ON jobs
WHEN substr(new.id, 15, 1) = '8' AND old.state <> new.state
     AND new.state IN ('completed', 'dead', 'cancelled')
BEGIN
    INSERT INTO news (topic, id, body, at)
    VALUES ('flow:' || substr(new.id, 1, 31) || '00000', new.id,
            json_object('state', new.state), new.finished_at)
    ON CONFLICT DO NOTHING;
END;
