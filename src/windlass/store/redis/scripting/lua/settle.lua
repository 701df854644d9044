-- Move running jobs, each under its fence; a '1' or '0' for each, or -1 if a result is missing.
-- ARGV = groups, in order: 'p' token n id... | 'r' token n (id result)... | 'o' id token move result
-- Groups p and r are plain successes of jobs that were claimed together: their heads are alike, so
-- one of them is unpacked and packed for all.
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
local read, set, gone, seen, memo = 0, {}, {}, {}, {}

-- Return what all jobs with this head become: fence, head after it, worker, queue, whether it has
-- neither key, head as a table, whether its cancellation was requested.
local function success(raw)
  local off, h = cmsgpack.unpack_one(raw)
  if h[STATE] ~= RUNNING then return false end
  local token, cancel = h[TOKEN], h[CANCEL] == 1
  local before = off == -1 and NIL or raw:sub(off + 1)
  h[STATE], h[FINISHED], h[TOKEN], h[WAITING_FOR] = COMPLETED, now, '', false
  h[CANCEL] = (cancel and h[SAGA] ~= 'undoing') and 1 or 0
  h[ERROR], h[FINGERPRINT], h[REASON] = false, '', false
  return {token, cmsgpack.pack(h), h[WORKER], h[QUEUE], not h[UNIQUE] and h[DONE_KEY] == '', h, cancel,
    reference(before, 1)}
end

local function complete(id, m, result)
  seen[id] = true
  set[#set + 1] = P .. 'h:' .. id
  set[#set + 1] = m[2] .. result
  local ref = reference(result, 1)
  if ref then call('PERSIST', P .. 'v:' .. ref) end
  if m[8] then call('EXPIRE', P .. 'v:' .. m[8], 60) end
  local those = gone[m[3]]
  if not those then those = {}; gone[m[3]] = those end
  those[#those + 1] = id
  local version = id:byte(7)
  if m[5] and (version < 128 or version >= 144) then
    local ends = ended_jobs[m[4]]
    if not ends then ends = {}; ended_jobs[m[4]] = ends end
    ends[id] = now
  else
    note_end(id, m[6], m[4])
  end
  count(RUNNING, m[4], -1)
  count(COMPLETED, m[4], 1)
  if m[7] then call('SREM', P .. 'cancel:' .. m[3], id) end
end

at = 1
while at <= #ARGV do
  local group = ARGV[at]
  if group == 'o' then
    local id = ARGV[at + 1]
    local moved = not seen[id]
      and settle_one(id, ARGV[at + 2], cmsgpack.unpack(ARGV[at + 3]), ARGV[at + 4])
    if moved then seen[id] = true end
    out[#out + 1] = moved and '1' or '0'
    at = at + 5
  else
    local token, n, step = ARGV[at + 1], tonumber(ARGV[at + 2]), group == 'p' and 1 or 2
    at = at + 3
    for _ = 1, n do
      local id, result = ARGV[at], step == 2 and ARGV[at + 1] or NIL
      at = at + step
      read = read + 1
      local raw = raws[read]
      local m = raw and memo[raw]
      if raw and m == nil then m = success(raw); memo[raw] = m end
      local moved = m and m[1] == token and not seen[id]
      if moved then complete(id, m, result) end
      out[#out + 1] = moved and '1' or '0'
    end
  end
end
for i = 1, #set, 1000 do call('MSET', unpack(set, i, math.min(i + 999, #set))) end
for worker, ids in pairs(gone) do call('SREM', P .. 'run:' .. worker, unpack(ids)) end
write_jobs()
finish()
return table.concat(out)
