-- List a process as a sleeper that wants to be woken, with its standing ask or none.
-- ARGV = sleeper, group, what the group serves, ask or ''
-- Returns the version of what waits, and what became of the last ask
-- flags: allow-oom
-- requires: begin
local key = P .. 'ask:' .. ARGV[1]
local last = call('GET', key)
if ARGV[4] ~= '' then
  call('SET', key, ARGV[4], 'EX', 3600)
elseif last then
  call('DEL', key)
end
call('HSET', P .. 'zz', ARGV[2], ARGV[3])
call('SADD', P .. 'z:' .. ARGV[2], ARGV[1])
return {tonumber(call('GET', P .. 'ver') or '0'), last or ''}
