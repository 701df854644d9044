-- What steps, events, flows and schedules need beside the jobs.

-- == steps =========================================================================================

ALTER TABLE jobs ADD COLUMN steps TEXT NOT NULL DEFAULT '[]';  -- JSON: the log of its steps
ALTER TABLE jobs ADD COLUMN saga TEXT;                -- ready, undoing or over: see windlass.core.job

-- == events ========================================================================================

-- Who waits for an event waits until the due time at the longest.
DROP INDEX jobs_due;
CREATE INDEX jobs_due ON jobs (due_at)
WHERE state = 'scheduled' AND (waiting_for IS NULL OR substr(waiting_for, 1, 6) = 'event:');

CREATE TABLE news (
    topic  TEXT    NOT NULL,                         -- the record under whose lock it is heard
    id     TEXT    NOT NULL,                         -- of the job that ended, or of the event
    body   TEXT    NOT NULL,                         -- JSON
    at     INTEGER NOT NULL,
    PRIMARY KEY (topic, id)
) STRICT, WITHOUT ROWID;

-- == flows =========================================================================================

-- Whatever statement ends a job of a flow, the flow is told in the same transaction. The id of such
-- a job is a UUIDv8, and but for its last five digits that of the flow.
CREATE TRIGGER jobs_ended AFTER UPDATE OF state ON jobs
WHEN new.state IN ('completed', 'dead', 'cancelled') AND old.state <> new.state
     AND substr(new.id, 15, 1) = '8'
BEGIN
    INSERT INTO news (topic, id, body, at)
    VALUES ('flow:' || substr(new.id, 1, 31) || '00000', new.id,
            json_object('state', new.state), new.finished_at)
    ON CONFLICT DO NOTHING;
END;

-- == alarms ========================================================================================

ALTER TABLE records ADD COLUMN alarm INTEGER;         -- when somebody is to look at it
CREATE INDEX records_alarm ON records (alarm) WHERE alarm IS NOT NULL;
