-- Make scheduled jobs that are due pending, the earliest first, until the bound of a call is reached.
-- ARGV = limit
-- Returns how many, a batch that its producer has left unfinished, and 1 if jobs may be left.
-- flags: allow-oom
-- requires: load leave enter write_jobs finish
local limit, n, queues, more = tonumber(ARGV[1]), 0, 0, 1
local MOST_QUEUES = 25
while n < limit and queues < MOST_QUEUES do
  local first = call('ZRANGE', P .. 'due', 0, 1, 'WITHSCORES')
  if not first[1] or tonumber(first[2]) > now then more = 0; break end
  queues = queues + 1
  local queue = first[1]
  local upto = math.min(now, first[4] and tonumber(first[4]) or now)
  local members = call('ZRANGEBYSCORE', P .. 'S:' .. queue, '-inf', upto, 'LIMIT', 0, limit - n)
  local ids = {}
  for i, place in ipairs(members) do ids[i] = place:sub(7) end
  load(ids)
  for _, id in ipairs(ids) do
    leave(id)
    heads[id][STATE], heads[id][WAITING_FOR] = PENDING, false
    enter(id)
    n = n + 1
  end
  local next = call('ZRANGE', P .. 'S:' .. queue, 0, 0, 'WITHSCORES')
  if next[1] then call('ZADD', P .. 'due', next[2], queue) else call('ZREM', P .. 'due', queue) end
  dues[queue] = nil
end
write_jobs()
finish()
local todo = call('ZRANGEBYSCORE', P .. 'todo', '-inf', now, 'LIMIT', 0, 1)
return {n, todo[1] or '', more}
