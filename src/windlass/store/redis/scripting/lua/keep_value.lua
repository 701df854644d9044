-- Keep a large value although memory is full: a result must be written, so that a full store empties.
-- ARGV = reference, seconds, value
-- flags: allow-oom
-- requires: begin
return call('SET', P .. 'v:' .. ARGV[1], ARGV[3], 'EX', ARGV[2])
