-- Delete finished jobs past their retention or beyond the number kept, streams, keys and workers.
-- ARGV = retention of finished and of dead jobs ('': for ever), limit, workers' retention, jobs
-- kept, retention of streams
-- Returns how many jobs, and how many other things.
-- flags: allow-oom
-- requires: load count forget finish
local limit, kept, jobs, others = tonumber(ARGV[3]), tonumber(ARGV[5]), 0, 0
local queues, finished = {}, 0
local fields = call('HGETALL', P .. 'n')
for i = 1, #fields, 2 do
  local state = fields[i]:sub(1, 1)
  if state == '4' or state == '6' then
    queues[fields[i]:sub(2)] = true
    finished = finished + fields[i + 1]
  end
end

local function before(span) return '(' .. string.format('%.0f', now - span) end

local function drop(queue, ids)
  if #ids == 0 then return end
  load(ids)
  for _, id in ipairs(ids) do
    if heads[id] then
      count(heads[id][STATE], queue, -1)
      forget(id)
      jobs = jobs + 1
    end
  end
  call('ZREM', P .. 'F:' .. queue, unpack(ids))
end

if ARGV[1] ~= '' then
  local horizon = before(ARGV[1])
  for queue in pairs(queues) do
    drop(queue, call('ZRANGEBYSCORE', P .. 'F:' .. queue, '-inf', horizon, 'LIMIT', 0, limit - jobs))
  end
  for _, key in ipairs(call('ZRANGEBYSCORE', P .. 'dt', '-inf', horizon, 'LIMIT', 0, limit)) do
    call('HDEL', P .. 'dk', key)
    call('ZREM', P .. 'dt', key)
    others = others + 1
  end
end
local excess = math.min(finished - jobs - kept, limit - jobs)
if excess > 0 then
  local oldest = {}
  for queue in pairs(queues) do
    local first = call('ZRANGE', P .. 'F:' .. queue, 0, excess - 1, 'WITHSCORES')
    for i = 1, #first, 2 do oldest[#oldest + 1] = {tonumber(first[i + 1]), first[i], queue} end
  end
  table.sort(oldest, function(a, b) return a[1] < b[1] end)
  local by_queue = {}
  for i = 1, math.min(excess, #oldest) do
    local those = by_queue[oldest[i][3]]
    if not those then those = {}; by_queue[oldest[i][3]] = those end
    those[#those + 1] = oldest[i][2]
  end
  for queue, ids in pairs(by_queue) do drop(queue, ids) end
end
if ARGV[2] ~= '' then
  local horizon = before(ARGV[2])
  for i = 1, #fields, 2 do
    local queue = fields[i]:sub(2)
    if fields[i]:sub(1, 1) == '5' and jobs < limit then
      local ids = call('ZRANGEBYSCORE', P .. 'D:' .. queue, '-inf', horizon, 'LIMIT', 0, 1000)
      load(ids)
      for _, id in ipairs(ids) do
        -- A person has yet to handle the steps that could not be undone.
        if heads[id] and heads[id][SAGA] ~= 'undoing' and jobs < limit then
          call('ZREM', P .. 'D:' .. queue, id)
          count(DEAD, queue, -1)
          forget(id)
          jobs = jobs + 1
        end
      end
    end
  end
end
for _, key in ipairs(call('ZRANGEBYSCORE', P .. 'ut', '-inf', now, 'LIMIT', 0, 1000)) do
  local hold = call('HGET', P .. 'u', key)
  if hold and hold:sub(17, 17) == 't' and struct.unpack('>I8', hold, 18) <= now then
    call('HDEL', P .. 'u', key)
    others = others + 1
  end
  call('ZREM', P .. 'ut', key)
end
local horizon = now - ARGV[6]
local streams = call('ZRANGEBYSCORE', P .. 'xt', '-inf', before(ARGV[6]), 'LIMIT', 0, limit)
load(streams)
for _, id in ipairs(streams) do
  local h = heads[id]
  local live = h and h[STATE] <= RUNNING
  if h and (live or h[FINISHED] >= horizon) then
    call('ZADD', P .. 'xt', live and now or h[FINISHED], id)
  else
    call('UNLINK', P .. 'x:' .. id)
    call('ZREM', P .. 'xt', id)
    others = others + 1
  end
end
for _, worker in ipairs(call('SMEMBERS', P .. 'workers')) do
  local w = call('HMGET', P .. 'w:' .. worker, 'ended', 'seen')
  if w[1] == '1' and now - w[2] > tonumber(ARGV[4]) then
    call('DEL', P .. 'w:' .. worker)
    call('SREM', P .. 'workers', worker)
    others = others + 1
  end
end
finish()
return {jobs, others}
