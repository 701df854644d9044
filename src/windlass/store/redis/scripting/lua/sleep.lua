-- List a process as a sleeper that wants to be woken, with its standing ask or none; or list it no longer.
-- An ask that was met is not left again: the call may be repeated, since its answer was lost.
-- ARGV = sleeper, group, what the group serves or '' to be listed no longer, ask or '', its token;
--   met asks whose jobs the sleeper has
-- Returns the version of what waits, and the other met asks of the sleeper: each is token, \2 and id
-- flags: allow-oom
-- requires: begin
local ask, met = P .. 'ask:' .. ARGV[1], P .. 'met:' .. ARGV[1]
if #ARGV > 5 then call('SREM', met, unpack(ARGV, 6)) end
local left, is_new = call('SMEMBERS', met), ARGV[4] ~= ''
for _, each in ipairs(left) do
  if each:match('^%d+') == ARGV[5] then is_new = false end
end
if is_new then
  call('SET', ask, ARGV[4], 'EX', 3600)
else
  call('DEL', ask)
end
if ARGV[3] ~= '' then
  call('HSET', P .. 'zz', ARGV[2], ARGV[3])
  call('SADD', P .. 'z:' .. ARGV[2], ARGV[1])
  -- A group that nobody belongs to any more is forgotten; the living are listed again sooner than that.
  call('EXPIRE', P .. 'z:' .. ARGV[2], 86400)
else
  call('SREM', P .. 'z:' .. ARGV[2], ARGV[1])
end
local version = tonumber(call('GET', P .. 'ver') or '0')
-- From now on enqueues look for sleepers; one that finds none takes this back.
if ARGV[3] ~= '' and version % 2 == 0 then call('INCR', P .. 'ver') end
return {math.floor(version / 2), left}
