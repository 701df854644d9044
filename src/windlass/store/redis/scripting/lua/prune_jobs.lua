-- Delete jobs that ended, unless they have changed since they were listed.
-- ARGV = the index in which they are listed, 'F:' or 'D:'; the time at which the last of them ended;
-- queue, number and ids for each queue
-- Returns how many.
-- flags: allow-oom
-- requires: memory count forget finish
local index, last, memo, deleted = ARGV[1], tonumber(ARGV[2]), {}, {}

-- Return a head and the result behind it; jobs that were claimed and ended together share one.
local function head(raw)
  local known = memo[raw]
  if not known then
    local off, h = cmsgpack.unpack_one(raw)
    known = {h, off == -1 and NIL or raw:sub(off + 1)}
    memo[raw] = known
  end
  return known[1], known[2]
end

-- Note the jobs of a queue that are to be deleted, and take them out of the index.
local function take_out(queue, ids)
  local keys, gone = {}, {}
  for i, id in ipairs(ids) do keys[2 * i - 1], keys[2 * i] = P .. 'j:' .. id, P .. 'h:' .. id end
  local rows = call('MGET', unpack(keys))
  for i, id in ipairs(ids) do
    local j, raw, h, result = rows[2 * i - 1], rows[2 * i], nil, nil
    if j and raw then h, result = head(raw) end
    -- A person has yet to handle the steps of a dead job that could not be undone.
    local undoing = h and h[STATE] == DEAD and h[SAGA] == 'undoing'
    if h and h[STATE] > RUNNING and h[FINISHED] <= last and not undoing then
      heads[id], bodies[id], results[id] = h, j, result
      count(h[STATE], queue, -1)
      deleted[#deleted + 1] = id
      gone[#gone + 1] = id
    elseif not j then
      gone[#gone + 1] = id
    end
  end
  if #gone > 0 then call('ZREM', P .. index .. queue, unpack(gone)) end
end

local at = 3
while at < #ARGV do
  local n = tonumber(ARGV[at + 1])
  take_out(ARGV[at], {unpack(ARGV, at + 2, at + 1 + n)})
  at = at + 2 + n
end
if #deleted > 0 then forget(deleted) end
finish()
return #deleted
