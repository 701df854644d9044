-- Begin a lease.
-- ARGV = worker, lease, info, pulse
-- flags: allow-oom
-- requires: begin
local key = P .. 'w:' .. ARGV[1]
call('DEL', key)
call('HSET', key, 'info', ARGV[3], 'pulse', ARGV[4], 'lease', ARGV[2], 'started', now, 'seen', now,
  'since', now, 'until', now + ARGV[2], 'ended', '0')
call('SADD', P .. 'workers', ARGV[1])
return 1
