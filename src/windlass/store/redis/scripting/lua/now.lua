-- The time.
-- flags: no-writes
-- requires: begin
return now
