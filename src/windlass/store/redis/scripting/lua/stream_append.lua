-- Add chunks to the streams of running jobs, each under its fence.
-- ARGV = id, token, attempt, offset, resumed, steps, number, size, chunks for each
-- Returns the number of chunks and of bytes of each stream, or nothing for those without a fence.
-- requires: load
local SPAN, PIECE = 1048576, 100

-- Drop what earlier attempts have streamed and this one streams again: the end of a stream, since
-- the way along the steps only grows along it.
local function replace(key, older, resumed)
  while older > 0 do
    local first = math.max(older - PIECE, 0)
    local groups, dropped = call('ZRANGE', key, first, older - 1), {}
    for i = #groups, 1, -1 do
      if struct.unpack('>I4', groups[i]) < resumed then break end
      dropped[#dropped + 1] = groups[i]
    end
    if #dropped > 0 then call('ZREM', key, unpack(dropped)) end
    if #dropped < #groups then return end
    older = first
  end
end

local function append(id, attempt, offset, resumed, steps, number, size, chunks)
  local key = P .. 'x:' .. id
  local below = '(' .. string.format('%.0f', attempt * SPAN)
  if offset == 0 then
    replace(key, call('ZCOUNT', key, '-inf', below), resumed)
    call('ZADD', P .. 'xt', now, id)
  else
    call('ZADD', P .. 'xt', 'NX', now, id)
  end
  local older, kept, total = call('ZCOUNT', key, '-inf', below), 0, 0
  if older > 0 then
    kept = tonumber(call('ZRANGE', key, older - 1, older - 1, 'WITHSCORES')[2]) % SPAN
  end
  local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')
  if last[1] then total = struct.unpack('>I8', last[1], 5) end
  local place = attempt * SPAN + kept + offset + number
  if last[1] and tonumber(last[2]) >= place then return {tonumber(last[2]) % SPAN, total} end
  total = total + size
  call('ZADD', key, string.format('%.0f', place), struct.pack('>I4I8', steps, total) .. chunks)
  return {place % SPAN, total}
end

local out = {}
for at = 1, #ARGV, 9 do
  local id = ARGV[at]
  load({id})
  local h, added = heads[id], {}
  if h and h[STATE] == RUNNING and h[TOKEN] == ARGV[at + 1] then
    local numbers = {}
    for i = 2, 7 do numbers[i - 1] = tonumber(ARGV[at + i]) end
    numbers[7] = ARGV[at + 8]
    added = append(id, unpack(numbers))
  end
  out[#out + 1] = added
end
return out
