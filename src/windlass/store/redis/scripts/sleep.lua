-- List a process as a sleeper that wants to be woken; return the version of what waits.
-- ARGV = sleeper, group, what the group serves
-- flags: allow-oom
-- requires: begin
call('HSET', P .. 'zz', ARGV[2], ARGV[3])
call('SADD', P .. 'z:' .. ARGV[2], ARGV[1])
return tonumber(call('GET', P .. 'ver') or '0')
