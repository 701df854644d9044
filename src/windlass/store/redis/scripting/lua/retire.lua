-- End a lease.
-- ARGV = worker
-- flags: allow-oom
-- requires: begin
local key = P .. 'w:' .. ARGV[1]
if call('EXISTS', key) == 1 then call('HSET', key, 'ended', '1') end
return 1
