-- The formats of what is stored, and this call's memory of it. Nothing here writes.
--
-- lane   = "<#queue>:<queue><#kind>:<kind><priority>:<key>"
-- j:<id> = bin(lane) payload bin(headers) max_retries timeout u64(created) u64(arrival)
-- h:<id> = the head, an array made by cmsgpack, and the result; absent until a plain job is claimed
-- A payload or result is bin(value), or str(reference): then the value is in v:<reference>.
-- A lane's members are arrival (6 bytes) and id (16 bytes), their scores due times in microseconds.
-- ver numbers the arrivals, and is twice the version of what waits, plus 1 while somebody may sleep: as long
-- as zz has groups. So an enqueue learns by the number that it takes anyway whether to look there.

-- name: clock
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- name: begin
-- requires: clock
local SCHEDULED, PENDING, RUNNING, COMPLETED, DEAD, CANCELLED = 1, 2, 3, 4, 5, 6
local STATE, DUE, ATTEMPT, FAILURES, CRASHES, CANCEL, WORKER = 1, 2, 3, 4, 5, 6, 7
local TOKEN, STARTED, FINISHED, WAITING_FOR, REASON, UNIQUE, DONE_KEY = 8, 9, 10, 11, 12, 13, 14
local EXPIRES, ERROR, PROGRESS, SAGA, LISTS, QUEUE, FINGERPRINT = 15, 16, 17, 18, 19, 20, 21
local NIL = '\192'
local call, P, now = redis.call, KEYS[1], clock()

-- name: memory
-- requires: begin
-- Jobs as this call knows them, and what it will write when it finishes.
local heads, bodies, results, dirty, new_jobs = {}, {}, {}, {}, {}
local counts, lanes, dues, woken, ended_jobs = {}, {}, {}, {}, {}

-- name: parts
local parsed = {}
local function parts(lane)
  local known = parsed[lane]
  if not known then
    local n, at = lane:match('^(%d+):()')
    local queue = lane:sub(at, at + n - 1)
    local m, start = lane:match('^(%d+):()', at + n)
    local kind = lane:sub(start, start + m - 1)
    local priority, key = lane:match('^(%-?%d+):(.*)$', start + m)
    known = {queue, kind, tonumber(priority), key}
    parsed[lane] = known
  end
  return known
end

-- name: lane_of
local function lane_of(j)
  if j:byte(1) == 196 then return j:sub(3, 2 + j:byte(2)) end
  return j:sub(4, 3 + j:byte(2) * 256 + j:byte(3))
end

-- name: skip
-- Return the place behind a bin or a short str.
local function skip(s, at)
  local b = s:byte(at)
  if b == 196 then return at + 2 + s:byte(at + 1) end
  if b == 197 then return at + 3 + s:byte(at + 1) * 256 + s:byte(at + 2) end
  if b >= 160 and b < 192 then return at + 1 + b - 160 end
  return at + 5 + struct.unpack('>I4', s, at + 1)
end

-- name: reference
-- Return the reference of a value that is in a key of its own.
local function reference(s, at)
  local b = s:byte(at)
  if b >= 160 and b < 192 then return s:sub(at + 1, at + b - 160) end
end

-- name: is_missing
-- requires: begin reference
-- Return whether a value that a script is about to refer to was never written, or got lost.
local function is_missing(s, at)
  local ref = reference(s, at)
  return ref and call('EXISTS', P .. 'v:' .. ref) == 0
end

-- name: bin
local function bin(s)
  local n = #s
  if n < 256 then return '\196' .. string.char(n) .. s end
  if n < 65536 then return '\197' .. struct.pack('>I2', n) .. s end
  return '\198' .. struct.pack('>I4', n) .. s
end

-- name: u64
local function u64(n) return '\207' .. struct.pack('>I8', n) end

-- name: member
local function member(id, j) return j:sub(-6) .. id end

-- name: is_timed
local function is_timed(waiting_for)
  return not waiting_for or waiting_for:sub(1, 6) == 'event:'
end

-- name: instant
-- requires: begin
-- Return a time that is 'r', so long from now, or 'a', a given one.
local function instant(how, value)
  if how == 'r' then return now + value end
  return tonumber(value)
end

-- name: first_head
-- requires: begin parts lane_of
local function first_head(j)
  local created = struct.unpack('>I8', j, #j - 16)
  return {PENDING, created, 0, 0, 0, 0, '', '', 0, 0, false, false, false, '', 0, false, false, '', 0,
    parts(lane_of(j))[1], ''}
end

-- name: load
-- requires: memory first_head
-- Read those of some jobs that are not in memory; false stands for a job that does not exist.
local function load(ids)
  local wanted, keys = {}, {}
  for _, id in ipairs(ids) do
    if bodies[id] == nil then
      bodies[id] = false
      wanted[#wanted + 1] = id
      keys[#keys + 1] = P .. 'j:' .. id
      keys[#keys + 1] = P .. 'h:' .. id
    end
  end
  local got, first
  for i, id in ipairs(wanted) do
    if i % 500 == 1 then
      first = 2 * i - 1
      got = call('MGET', unpack(keys, first, math.min(first + 999, #keys)))
    end
    local j, raw = got[2 * i - first], got[2 * i - first + 1]
    bodies[id] = j
    if not j then
      heads[id] = false
    elseif raw then
      local off, h = cmsgpack.unpack_one(raw)
      heads[id], results[id] = h, off == -1 and NIL or raw:sub(off + 1)
    else
      heads[id], results[id] = first_head(j), NIL
    end
  end
end

-- name: packed
-- requires: memory
local function packed(id) return cmsgpack.pack(heads[id]) .. (results[id] or NIL) end

-- name: shown
-- requires: packed
-- Return a job as the client reads it: an array of its id, seven items, head and result.
local function shown(id) return '\154\196\16' .. id .. bodies[id] .. packed(id) end

-- name: lists
-- requires: memory
-- Return the steps and histories of those jobs that have any.
local function lists(ids)
  local more = {}
  for _, id in ipairs(ids) do
    local h = heads[id]
    if h and h[LISTS] ~= 0 then
      more[#more + 1] = {id, call('LRANGE', P .. 's:' .. id, 0, -1), call('LRANGE', P .. 'y:' .. id, 0, -1)}
    end
  end
  return more
end
