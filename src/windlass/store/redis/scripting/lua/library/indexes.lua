-- The places in which a job is listed. Every change of a job is leave, change, enter; only these two
-- know the indexes. `write_jobs` writes what jobs became, and `finish` counters and wake-ups.

-- name: count
-- requires: memory
local function count(state, queue, by)
  local field = state .. queue
  counts[field] = (counts[field] or 0) + by
end

-- name: flow_topic
-- Return the topic of the flow that a job belongs to, by its id alone: a UUID of version 8.
local function flow_topic(id)
  local version = id:byte(7)
  if version < 128 or version >= 144 then return nil end
  local h = {}
  for i = 1, 16 do h[i] = string.format('%02x', id:byte(i)) end
  local s = table.concat(h):sub(1, 27) .. '00000'
  return 'flow:' .. s:sub(1, 8) .. '-' .. s:sub(9, 12) .. '-' .. s:sub(13, 16) .. '-' .. s:sub(17, 20)
    .. '-' .. s:sub(21)
end

-- name: send
-- requires: begin
local function send(topic, id, body, at)
  local news = struct.pack('>I8I8', at, call('INCR', P .. 'seq')) .. body
  if call('HSETNX', P .. 'news:' .. topic, id, news) == 1 then
    call('ZADD', P .. 'topics', 'NX', at, topic)
  end
end

-- name: free_key
-- requires: begin
local function free_key(id, h, by_claim)
  local key = h[UNIQUE]
  if not key then return end
  local hold = call('HGET', P .. 'u', key)
  if not hold or hold:sub(1, 16) ~= id then return end
  local mode = hold:sub(17, 17)
  if mode == 'c' or (mode == 's' and not by_claim) then call('HDEL', P .. 'u', key) end
end

-- name: forget_values
-- requires: memory skip reference
-- Drop the keys of a job's large values; a reader may still need them for a moment.
local function forget_values(id)
  local j, result = bodies[id], results[id]
  local ref = reference(j, skip(j, 1))
  if ref then call('EXPIRE', P .. 'v:' .. ref, 60) end
  ref = result and reference(result, 1)
  if ref then call('EXPIRE', P .. 'v:' .. ref, 60) end
end

-- name: note_end
-- requires: memory flow_topic send free_key parts lane_of
local STATE_NAMES = {'scheduled', 'pending', 'running', 'completed', 'dead', 'cancelled'}
local function note_end(id, h, queue)
  free_key(id, h)
  local topic = flow_topic(id)
  if topic then send(topic, id, '{"state":"' .. STATE_NAMES[h[STATE]] .. '"}', h[FINISHED]) end
  if h[STATE] == DEAD then
    call('ZADD', P .. 'D:' .. queue, h[FINISHED], id)
  else
    local those = ended_jobs[queue]
    if not those then those = {}; ended_jobs[queue] = those end
    those[id] = h[FINISHED]
  end
  if h[STATE] == COMPLETED and h[DONE_KEY] ~= '' then
    local lane = lane_of(bodies[id] or call('GET', P .. 'j:' .. id))
    local key = parts(lane)[2] .. '\0' .. h[DONE_KEY]
    local first = call('HGET', P .. 'dk', key)
    if not first or call('EXISTS', P .. 'j:' .. first:sub(1, 16)) == 0 then
      call('HSET', P .. 'dk', key, id .. struct.pack('>I8', h[FINISHED]))
      call('ZADD', P .. 'dt', h[FINISHED], key)
    end
  end
end

-- name: leave
-- requires: count parts lane_of member is_timed
local function leave(id)
  local j, h = bodies[id], heads[id]
  local lane = lane_of(j)
  local queue, state = parts(lane)[1], h[STATE]
  count(state, queue, -1)
  if state == PENDING then
    call('ZREM', P .. 'L:' .. lane, member(id, j))
    lanes[lane] = true
  elseif state == SCHEDULED then
    local waiting_for = h[WAITING_FOR]
    if is_timed(waiting_for) then
      call('ZREM', P .. 'S:' .. queue, member(id, j))
      dues[queue] = true
    else
      call('ZREM', P .. 'K:' .. queue, member(id, j))
    end
    if waiting_for then call('ZREM', P .. 'W:' .. waiting_for, member(id, j)) end
  elseif state == RUNNING then
    call('SREM', P .. 'run:' .. h[WORKER], id)
    call('SREM', P .. 'cancel:' .. h[WORKER], id)
  elseif state == DEAD then
    call('ZREM', P .. 'D:' .. queue, id)
  else
    -- It may have ended in this very call, and not be listed yet.
    if ended_jobs[queue] then ended_jobs[queue][id] = nil end
    call('ZREM', P .. 'F:' .. queue, id)
  end
end

-- name: enter
-- requires: count parts lane_of member is_timed note_end
local function enter(id)
  local j, h = bodies[id], heads[id]
  local lane = lane_of(j)
  local queue, state = parts(lane)[1], h[STATE]
  count(state, queue, 1)
  dirty[id] = true
  if state == PENDING then
    call('ZADD', P .. 'L:' .. lane, h[DUE], member(id, j))
    lanes[lane] = true
    woken[lane] = (woken[lane] or 0) + 1
  elseif state == SCHEDULED then
    local waiting_for = h[WAITING_FOR]
    if is_timed(waiting_for) then
      call('ZADD', P .. 'S:' .. queue, h[DUE], member(id, j))
      dues[queue] = true
    else
      call('ZADD', P .. 'K:' .. queue, h[DUE], member(id, j))
    end
    if waiting_for then call('ZADD', P .. 'W:' .. waiting_for, h[DUE], member(id, j)) end
  elseif state == RUNNING then
    call('SADD', P .. 'run:' .. h[WORKER], id)
    call('SADD', P .. 'holders', h[WORKER])
    if h[CANCEL] == 1 then call('SADD', P .. 'cancel:' .. h[WORKER], id) end
  else
    note_end(id, h, queue)
  end
end

-- name: forget
-- requires: memory forget_values
-- Delete jobs that are in no index but the one of all ids.
local function forget(ids)
  local keys, streams = {}, call('EXISTS', P .. 'xt') == 1
  for _, id in ipairs(ids) do
    forget_values(id)
    local n = #keys
    keys[n + 1], keys[n + 2] = P .. 'j:' .. id, P .. 'h:' .. id
    if heads[id][LISTS] ~= 0 then keys[n + 3], keys[n + 4] = P .. 's:' .. id, P .. 'y:' .. id end
    if streams then keys[#keys + 1] = P .. 'x:' .. id end
  end
  call('UNLINK', unpack(keys))
  call('ZREM', P .. 'all', unpack(ids))
end

-- name: wake
-- requires: begin
-- Wake sleepers that serve a lane: one for each job, and sixteen at most. A group says which queues
-- it serves, which it does not, and which kinds: each name between two \1, the three lists parted
-- by \2. PUBLISH says how many heard it, so that the dead are passed over, a limited number in a call: if all
-- of them are, the job is found by a poll. `hand_over` may give the job to a sleeper that asks for it.
local function wake(groups, queue, kind, jobs, word, hand_over)
  local tries = 100
  for i = 1, #groups, 2 do
    local queues, excluded, kinds = groups[i + 1]:match('^([^\2]*)\2([^\2]*)\2(.*)$')
    local serves = (queues == '' or queues:find('\1' .. queue .. '\1', 1, true))
      and not excluded:find('\1' .. queue .. '\1', 1, true)
      and (kinds == '' or not kind or kinds:find('\1' .. kind .. '\1', 1, true))
    while serves and jobs > 0 and tries > 0 do
      tries = tries - 1
      local sleeper = call('SPOP', P .. 'z:' .. groups[i])
      if not sleeper then
        call('HDEL', P .. 'zz', groups[i])
        serves = false
      elseif (hand_over and hand_over(sleeper)) or call(PUBLISH, P .. 'wake:' .. sleeper, word) > 0 then
        jobs = jobs - 1
      end
    end
  end
end

-- name: write_jobs
-- requires: packed
-- Write new jobs, and the heads of those that changed.
local function write_jobs()
  local set = {}
  local function write(key, value)
    if #set >= 1000 then call('MSET', unpack(set)); set = {} end
    set[#set + 1] = key
    set[#set + 1] = value
  end
  local ids = {}
  for _, id in ipairs(new_jobs) do
    if bodies[id] then
      write(P .. 'j:' .. id, bodies[id])
      ids[#ids + 1] = 0
      ids[#ids + 1] = id
    end
  end
  for i = 1, #ids, 1000 do call('ZADD', P .. 'all', unpack(ids, i, math.min(i + 999, #ids))) end
  for id in pairs(dirty) do
    if heads[id] then write(P .. 'h:' .. id, packed(id)) end
  end
  if #set > 0 then call('MSET', unpack(set)) end
end

-- name: write_counts
-- requires: memory
-- Add what this call counted. A command takes longer than what it does: so all counts are read by one, and
-- written by one.
local function write_counts()
  local fields = {}
  for field, by in pairs(counts) do
    if by ~= 0 then fields[#fields + 1] = field end
  end
  for from = 1, #fields, 500 do
    local before = call('HMGET', P .. 'n', unpack(fields, from, math.min(from + 499, #fields)))
    local set, zero = {}, {}
    for i, known in ipairs(before) do
      local field = fields[from + i - 1]
      local jobs = (tonumber(known) or 0) + counts[field]
      if jobs == 0 then
        zero[#zero + 1] = field
      else
        set[#set + 1] = field
        set[#set + 1] = jobs
      end
    end
    if #set > 0 then call('HSET', P .. 'n', unpack(set)) end
    if #zero > 0 then call('HDEL', P .. 'n', unpack(zero)) end
  end
end

-- name: finish
-- requires: memory parts write_counts wake
local function finish()
  for queue, jobs in pairs(ended_jobs) do
    local set = {}
    for id, at in pairs(jobs) do
      set[#set + 1] = at
      set[#set + 1] = id
      if #set >= 1000 then call('ZADD', P .. 'F:' .. queue, unpack(set)); set = {} end
    end
    if #set > 0 then call('ZADD', P .. 'F:' .. queue, unpack(set)) end
  end
  write_counts()
  local firsts, empty = {}, {}
  for lane in pairs(lanes) do
    local first = call('ZRANGE', P .. 'L:' .. lane, 0, 0, 'WITHSCORES')
    if first[1] then
      firsts[#firsts + 1] = first[2] - parts(lane)[3] * 60000000
      firsts[#firsts + 1] = lane
    else
      empty[#empty + 1] = lane
    end
  end
  for i = 1, #firsts, 1000 do call('ZADD', P .. 'heads', unpack(firsts, i, math.min(i + 999, #firsts))) end
  for i = 1, #empty, 1000 do call('ZREM', P .. 'heads', unpack(empty, i, math.min(i + 999, #empty))) end
  local sooner = {}
  for queue in pairs(dues) do
    local first = call('ZRANGE', P .. 'S:' .. queue, 0, 0, 'WITHSCORES')
    if first[1] then
      local before = call('ZSCORE', P .. 'due', queue)
      if not before or tonumber(first[2]) < tonumber(before) then sooner[queue] = true end
      call('ZADD', P .. 'due', first[2], queue)
    else
      call('ZREM', P .. 'due', queue)
    end
  end
  if not next(woken) and not next(sooner) then return end
  local version = call('INCRBY', P .. 'ver', 2)
  if version % 2 == 0 then return end
  local word = struct.pack('>I8I8', now, (version - 1) / 2)
  local groups = call('HGETALL', P .. 'zz')
  if #groups == 0 then
    call('INCRBY', P .. 'ver', '-1')
    return
  end
  for lane, jobs in pairs(woken) do
    local of = parts(lane)
    wake(groups, of[1], of[2], math.min(jobs, 16), word .. lane)
  end
  -- Sleeping workers must learn of the earlier due time.
  for queue in pairs(sooner) do wake(groups, queue, nil, 1, word) end
end
