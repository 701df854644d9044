-- The terms of a search as conditions on a job's row: none is ever NULL, so that each may be
-- negated. {n} is the beginning of the names of its values. A field of one text has a fragment of its
-- name for that text, as which {text} stands in the {choices} that are put into a frame.

-- name: frame
coalesce({choices}, false)

-- name: equal
{text} = ANY (%({n}_equal)s::text[])

-- name: prefixes
{text} ^@ ANY (%({n}_prefixes)s::text[])

-- name: kind
kind

-- name: queue
queue

-- name: key
nullif(key, '')

-- name: worker
worker

-- name: unreadable
-- A NUL or half a character, with which only other programs write; a value in such a document would
-- end the search with an error.
'\\u(0000|[dD][89abAB]..(?!\\u[dD][c-fC-F]))|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]'

-- name: header
(CASE WHEN strpos(headers::text, '\u') = 0 OR headers::text !~ {unreadable}
      THEN headers ->> (%({n}_path)s::text[])[1] END)

-- name: payload
(CASE WHEN strpos(payload::text, '\u') = 0 OR payload::text !~ {unreadable}
      THEN {document} #>> %({n}_path)s::text[] END)

-- name: payload_frame
-- Lists and objects are no values; that is asked last, since it reads the document again.
CASE WHEN {choices}
     THEN json_typeof({document} #> %({n}_path)s::text[]) NOT IN ('object', 'array') ELSE false END

-- name: document
payload

-- name: document_part
-- A step from the end of a list begins a path of its own: within a path, PostgreSQL (up to 18) counts
-- it from the end of the first list that is as deep, whichever that is.
{document} #> %({n}_{part})s::text[]

-- name: tag
(CASE WHEN strpos(headers::text, '\u') = 0 OR headers::text !~ {unreadable}
      THEN string_to_array(headers ->> 'windlass-tags', ',') END)

-- name: tag_equal
{text} && %({n}_equal)s::text[]

-- name: tag_prefixes
EXISTS (SELECT FROM unnest({text}) AS tag WHERE tag ^@ ANY (%({n}_prefixes)s::text[]))

-- name: state
state = ANY (%({n}_equal)s::text[])
OR (cardinality(%({n}_retrying)s::text[]) > 0 AND state = 'scheduled' AND failures > 0)

-- name: id
EXISTS (SELECT FROM unnest(%({n}_first)s::uuid[], %({n}_last)s::uuid[]) AS ids (low, high)
        WHERE id BETWEEN low AND high)

-- name: flow
-- The version of an id says whether it is of a flow.
substr(id::text, 15, 1) = '8'
AND EXISTS (SELECT FROM unnest(%({n}_first)s::uuid[], %({n}_last)s::uuid[]) AS ids (low, high)
            WHERE id BETWEEN low AND high)

-- name: error
EXISTS (SELECT FROM unnest(%({n}_texts)s::text[]) AS wanted
        WHERE strpos(lower(((error ->> 'type') || ': ' || (error ->> 'message')) COLLATE "C"),
                     wanted) > 0)
OR coalesce(error ->> 'fingerprint' ^@ ANY (%({n}_groups)s::text[]), false)

-- name: text
EXISTS (SELECT FROM unnest(%({n}_texts)s::text[]) AS wanted
        WHERE strpos(lower(((error ->> 'type') || ': ' || (error ->> 'message')) COLLATE "C"),
                     wanted) > 0
           OR strpos(lower(reason COLLATE "C"), wanted) > 0)
OR coalesce(error ->> 'fingerprint' ^@ ANY (%({n}_groups)s::text[]), false)
OR EXISTS (SELECT FROM unnest(%({n}_ids)s::text[]) AS digits
           WHERE starts_with(replace(id::text, '-', ''), digits)
              OR right(replace(id::text, '-', ''), length(digits)) = digits)
