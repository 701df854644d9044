-- Delete keys, streams and workers past their retention.
-- ARGV = how many of each at most; retention of idempotency keys ('': for ever), streams, workers
-- Returns how many, and 1 if there may be more.
-- flags: allow-oom
-- requires: load
local limit, pruned, more = tonumber(ARGV[1]), 0, 0

local function listed(name, horizon)
  return call('ZRANGEBYSCORE', P .. name, '-inf', horizon, 'LIMIT', 0, limit)
end

-- Count what was deleted of a list that has as many entries as were asked for, or fewer.
local function deleted(number, of)
  pruned = pruned + number
  if number > 0 and #of == limit then more = 1 end
end

local function before(span) return '(' .. string.format('%.0f', now - span) end

if ARGV[2] ~= '' then
  local keys = listed('dt', before(ARGV[2]))
  if #keys > 0 then
    call('HDEL', P .. 'dk', unpack(keys))
    call('ZREM', P .. 'dt', unpack(keys))
    deleted(#keys, keys)
  end
end
local held, freed = listed('ut', now), 0
for _, key in ipairs(held) do
  local hold = call('HGET', P .. 'u', key)
  if hold and hold:sub(17, 17) == 't' and struct.unpack('>I8', hold, 18) <= now then
    call('HDEL', P .. 'u', key)
    freed = freed + 1
  end
  call('ZREM', P .. 'ut', key)
end
deleted(freed, held)
local horizon = now - ARGV[3]
local streams, ended = listed('xt', before(ARGV[3])), 0
load(streams)
for _, id in ipairs(streams) do
  local h = heads[id]
  local live = h and h[STATE] <= RUNNING
  if h and (live or h[FINISHED] >= horizon) then
    call('ZADD', P .. 'xt', live and now or h[FINISHED], id)
  else
    call('UNLINK', P .. 'x:' .. id)
    call('ZREM', P .. 'xt', id)
    ended = ended + 1
  end
end
deleted(ended, streams)
if more == 0 then -- Workers are few, and looked at once.
  for _, worker in ipairs(call('SMEMBERS', P .. 'workers')) do
    local w = call('HMGET', P .. 'w:' .. worker, 'ended', 'seen')
    if w[1] == '1' and now - w[2] > tonumber(ARGV[4]) then
      call('DEL', P .. 'w:' .. worker)
      call('SREM', P .. 'workers', worker)
      pruned = pruned + 1
    end
  end
end
return {pruned, more}
