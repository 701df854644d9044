-- Move running jobs, each under its fence; a '1' or '0' for each, or -1 if a result is missing. The answer
-- is shorter than the list if the bound of a call is reached: the rest is for the next one.
-- ARGV = groups, in order: 'p' token n id... | 'r' token n (id result)... | 'o' id token move result
-- Groups p and r are plain successes of jobs that were claimed together. Of those that were enqueued
-- together as well the heads are alike, so one of them is unpacked and packed for all.
-- flags: allow-oom
-- requires: is_missing settle_one count note_end reference write_jobs finish
local at, out, reads = 1, {}, {}
while at <= #ARGV do
  local group, step = ARGV[at], ARGV[at] == 'p' and 1 or 2
  if group == 'o' then
    if is_missing(ARGV[at + 4], 1) then return -1 end
    at = at + 5
  else
    local n = tonumber(ARGV[at + 2])
    for i = 0, n - 1 do
      reads[#reads + 1] = P .. 'h:' .. ARGV[at + 3 + i * step]
      if step == 2 and is_missing(ARGV[at + 4 + i * step], 1) then return -1 end
    end
    at = at + 3 + n * step
  end
end
local raws = #reads > 0 and call('MGET', unpack(reads)) or {}
local read, set, seen, memo, gone, ends = 0, {}, {}, {}, {}, {}
-- In plain successes with a known head: what a head costs that is another one, and a queue that is. The
-- first two of both are free, so that all jobs of a call may be moved if they are nearly alike.
local MOST, OTHER, HEAD, QUEUE_COST, cost = 160, 2.5, 1, 3, -8

-- Return what all jobs with this head become, and the lists for those that do; false if they do not run.
local function success(raw)
  local off, h = cmsgpack.unpack_one(raw)
  if h[STATE] ~= RUNNING then return false end
  local token, cancel = h[TOKEN], h[CANCEL] == 1
  local before = off == -1 and NIL or raw:sub(off + 1)
  h[STATE], h[FINISHED], h[TOKEN], h[WAITING_FOR] = COMPLETED, now, '', false
  h[CANCEL] = (cancel and h[SAGA] ~= 'undoing') and 1 or 0
  h[ERROR], h[FINGERPRINT], h[REASON] = false, '', false
  local packed, worker, queue = cmsgpack.pack(h), h[WORKER], h[QUEUE]
  cost = cost + HEAD
  if not gone[worker] then gone[worker] = {} end
  if not ends[queue] then ends[queue] = {}; cost = cost + QUEUE_COST end
  return {token = token, packed = packed, plain = packed .. NIL, head = h, cancel = cancel,
    gone = gone[worker], ends = ends[queue], has_key = h[UNIQUE] or h[DONE_KEY] ~= '',
    dropped = reference(before, 1)}
end

local score = string.format('%.0f', now)
local function complete(id, m, result)
  local n = #set
  set[n + 1] = reads[read]
  if result then
    set[n + 2] = m.packed .. result
    local ref = reference(result, 1)
    if ref then call('PERSIST', P .. 'v:' .. ref) end
  else
    set[n + 2] = m.plain
  end
  if m.dropped then call('EXPIRE', P .. 'v:' .. m.dropped, 60) end
  m.gone[#m.gone + 1] = id
  n = #m.ends
  m.ends[n + 1], m.ends[n + 2] = score, id
  local version = id:byte(7)
  if m.has_key or (version >= 128 and version < 144) then note_end(id, m.head, m.head[QUEUE]) end
  if m.cancel then call('SREM', P .. 'cancel:' .. m.head[WORKER], id) end
end

at = 1
while at <= #ARGV and cost < MOST do
  local group = ARGV[at]
  if group == 'o' then
    local id = ARGV[at + 1]
    local moved = not seen[id]
      and settle_one(id, ARGV[at + 2], cmsgpack.unpack(ARGV[at + 3]), ARGV[at + 4])
    if moved then seen[id] = true end
    out[#out + 1] = moved and '1' or '0'
    cost = cost + OTHER
    at = at + 5
  else
    local token, n, step = ARGV[at + 1], tonumber(ARGV[at + 2]), group == 'p' and 1 or 2
    at = at + 3
    for _ = 1, n do
      if cost >= MOST then break end
      local id = ARGV[at]
      read = read + 1
      local raw = raws[read]
      local m = raw and memo[raw]
      if raw and m == nil then m = success(raw); memo[raw] = m end
      if m and m.token == token and not seen[id] then
        seen[id] = true
        complete(id, m, step == 2 and ARGV[at + 1])
        out[#out + 1] = '1'
      else
        out[#out + 1] = '0'
      end
      cost = cost + 1
      at = at + step
    end
  end
end
for i = 1, #set, 1000 do call('MSET', unpack(set, i, math.min(i + 999, #set))) end
for queue, places in pairs(ends) do
  local n = #places
  for i = 1, n, 1000 do call('ZADD', P .. 'F:' .. queue, unpack(places, i, math.min(i + 999, n))) end
  count(RUNNING, queue, -n / 2)
  count(COMPLETED, queue, n / 2)
end
for worker, ids in pairs(gone) do
  if #ids > 0 then call('SREM', P .. 'run:' .. worker, unpack(ids)) end
end
write_jobs()
finish()
return table.concat(out)
