-- The terms of a search as conditions on a job's row: none is ever NULL, so that each may be
-- negated. {n} is the beginning of the names of its values, JSON lists. A field of one text has a
-- fragment of its name for that text, as which {text} stands in the {choices} that are put into a
-- frame. Columns are qualified, since json_each has a key and an id, too. text_at(document, path)
-- is the function of core.search.documents.

-- name: frame
{choices}

-- name: equal
EXISTS (SELECT 1 FROM json_each(:{n}_equal) AS wanted WHERE {text} = wanted.value)

-- name: prefixes
EXISTS (SELECT 1 FROM json_each(:{n}_prefixes) AS prefix
        WHERE substr({text}, 1, length(prefix.value)) = prefix.value)

-- name: kind
jobs.kind

-- name: queue
jobs.queue

-- name: key
nullif(jobs.key, '')

-- name: worker
jobs.worker

-- name: header
text_at(jobs.headers, :{n}_path)

-- name: payload
text_at(jobs.payload, :{n}_path)

-- name: tag
text_at(jobs.headers, '["windlass-tags"]')

-- name: tag_equal
EXISTS (SELECT 1 FROM json_each(:{n}_equal) AS wanted
        WHERE instr(wanted.value, ',') = 0
          AND instr(',' || {text} || ',', ',' || wanted.value || ',') > 0)

-- name: tag_prefixes
EXISTS (SELECT 1 FROM json_each(:{n}_prefixes) AS prefix
        WHERE instr(prefix.value, ',') = 0
          AND instr(',' || nullif({text}, ''), ',' || prefix.value) > 0)

-- name: state
jobs.state IN (SELECT value FROM json_each(:{n}_equal))
OR (json_array_length(:{n}_retrying) > 0 AND jobs.state = 'scheduled' AND jobs.failures > 0)

-- name: id
EXISTS (SELECT 1 FROM json_each(:{n}_first) AS low JOIN json_each(:{n}_last) AS high
        ON low.key = high.key WHERE jobs.id BETWEEN low.value AND high.value)

-- name: flow
-- The version of an id says whether it is of a flow.
substr(jobs.id, 15, 1) = '8'
AND EXISTS (SELECT 1 FROM json_each(:{n}_first) AS low JOIN json_each(:{n}_last) AS high
            ON low.key = high.key WHERE jobs.id BETWEEN low.value AND high.value)

-- name: error
EXISTS (SELECT 1 FROM json_each(:{n}_texts) AS wanted
        WHERE instr(lower((jobs.error ->> 'type') || ': ' || (jobs.error ->> 'message')),
                    wanted.value) > 0)
OR EXISTS (SELECT 1 FROM json_each(:{n}_groups) AS digits
           WHERE substr(jobs.error ->> 'fingerprint', 1, length(digits.value)) = digits.value)

-- name: text
EXISTS (SELECT 1 FROM json_each(:{n}_texts) AS wanted
        WHERE instr(lower((jobs.error ->> 'type') || ': ' || (jobs.error ->> 'message')),
                    wanted.value) > 0
           OR instr(lower(jobs.reason), wanted.value) > 0)
OR EXISTS (SELECT 1 FROM json_each(:{n}_groups) AS digits
           WHERE substr(jobs.error ->> 'fingerprint', 1, length(digits.value)) = digits.value)
OR EXISTS (SELECT 1 FROM json_each(:{n}_ids) AS digits
           WHERE substr(replace(jobs.id, '-', ''), 1, length(digits.value)) = digits.value
              OR substr(replace(jobs.id, '-', ''), -length(digits.value)) = digits.value)
