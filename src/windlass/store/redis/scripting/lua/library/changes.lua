-- What jobs become: new ones, settled ones, moved ones.

-- name: amend
-- requires: leave enter skip bin instant reference
-- Change the holder of a unique key as a duplicate says: its payload, its due time or both.
local function amend(holder, j, lane, options)
  local h, old = heads[holder], bodies[holder]
  if not h or options[7] == 'keep' or h[ATTEMPT] ~= 0 then return end
  if h[STATE] ~= PENDING and h[STATE] ~= SCHEDULED then return end
  local is, new = parts(lane_of(old)), parts(lane)
  if is[2] ~= new[2] then return end
  local due = options[1] ~= '' and instant(options[1], options[2]) or 0
  leave(holder)
  if options[7] ~= 'push' then
    local moved = #is[1] .. ':' .. is[1] .. #is[2] .. ':' .. is[2] .. string.format('%d', is[3]) .. ':' .. new[4]
    local payload, from = skip(old, 1), skip(j, 1)
    local dropped, taken = reference(old, payload), reference(j, from)
    if dropped then call('EXPIRE', P .. 'v:' .. dropped, 60) end
    if taken then call('PERSIST', P .. 'v:' .. taken) end
    local rest = skip(old, skip(old, payload))
    bodies[holder] = bin(moved) .. j:sub(from, skip(j, skip(j, from)) - 1) .. old:sub(rest)
    call('SET', P .. 'j:' .. holder, bodies[holder])
    h[DONE_KEY] = options[8]
  end
  if options[7] ~= 'replace' and due > now and due > h[DUE] then h[DUE] = due; h[STATE] = SCHEDULED end
  enter(holder)
end

-- name: arrive
-- requires: begin
-- Return the number of a job that arrives. A script that adds many jobs sets `expected`, and takes the
-- numbers of all of them at once.
local expected, taken, last_number = 1, 0, 0
local function arrive()
  if taken == 0 then last_number, taken = call('INCRBY', P .. 'ver', 2 * expected), expected end
  taken = taken - 1
  return last_number - 2 * taken
end

-- name: add
-- requires: load leave enter u64 instant amend reference skip arrive
-- Add a job with whatever it has; return its id, or the holder of its unique key and 1.
-- options = due, expiry (each 'r' or 'a' and a value, or ''), unique key, until, on_duplicate,
-- idempotency key, waiting_for
local function add(id, j, options)
  if bodies[id] == nil then load({id}) end
  if bodies[id] then return id, 0 end
  local lane, key, span = lane_of(j), options[5], options[6]
  if key ~= false then
    -- A request that changed the holder of its key left no job: its repetition must change nothing.
    local before = options[7] ~= 'keep' and call('GET', P .. 'a:' .. id)
    if before then return before, 1 end
    local hold = call('HGET', P .. 'u', key)
    if hold and (hold:sub(17, 17) ~= 't' or struct.unpack('>I8', hold, 18) > now) then
      local holder = hold:sub(1, 16)
      load({holder})
      amend(holder, j, lane, options)
      if options[7] ~= 'keep' then call('SET', P .. 'a:' .. id, holder, 'EX', 86400) end
      return holder, 1
    end
    local mode = span == 'claimed' and 'c' or span == 'settled' and 's' or 't'
    call('HSET', P .. 'u', key, id .. mode .. (mode == 't' and struct.pack('>I8', now + span) or ''))
    if mode == 't' then call('ZADD', P .. 'ut', now + span, key) end
  end
  local due = options[1] ~= '' and math.max(instant(options[1], options[2]), now) or now
  local ref = reference(j, skip(j, 1))
  if ref then call('PERSIST', P .. 'v:' .. ref) end
  j = j .. u64(now) .. u64(arrive())
  bodies[id], results[id] = j, NIL
  heads[id] = {(due > now or options[9]) and SCHEDULED or PENDING, due, 0, 0, 0, 0, '', '', 0, 0,
    options[9], false, key, options[8], options[3] ~= '' and instant(options[3], options[4]) or 0,
    false, false, '', 0, parts(lane)[1], ''}
  new_jobs[#new_jobs + 1] = id
  enter(id)
  return id, 0
end

-- name: settle_one
-- requires: load leave enter instant reference
-- Move a running job under its fence; return whether it was moved.
-- move = state, due (how, value), failures, crashes, reason, waiting_for, saga, error, fingerprint,
-- attempt, steps...
local function settle_one(id, token, move, result)
  load({id})
  local h = heads[id]
  if not h or h[STATE] ~= RUNNING or h[TOKEN] ~= token or move[1] == RUNNING then return false end
  leave(id)
  local state, reason, how = move[1], move[6], move[2]
  local saga = move[8] ~= '' and move[8] or h[SAGA]
  local cancelled = h[CANCEL] == 1 and saga ~= 'undoing'
  if cancelled and (state == SCHEDULED or state == PENDING or state == CANCELLED) then
    reason = h[REASON]
    -- A job with steps to undo is started once more, to undo them.
    if saga == 'ready' and state ~= CANCELLED then state, how = PENDING, '' else state = CANCELLED end
  end
  h[STATE] = state
  if how ~= '' then h[DUE] = math.max(instant(how, move[3]), now) end
  h[WAITING_FOR] = state == SCHEDULED and move[7]
  h[CANCEL] = cancelled and 1 or 0
  h[FAILURES], h[CRASHES] = h[FAILURES] + move[4], h[CRASHES] + move[5]
  if state == SCHEDULED or state == PENDING then
    h[WORKER], h[STARTED], h[FINISHED] = '', 0, 0
  else
    h[FINISHED] = now
  end
  h[TOKEN] = ''
  if state == COMPLETED then
    h[ERROR], h[FINGERPRINT] = false, ''
  elseif move[9] then
    h[ERROR], h[FINGERPRINT] = move[9], move[10]
  end
  h[REASON], h[SAGA] = reason, saga
  local dropped, taken = reference(results[id], 1), reference(result, 1)
  if dropped then call('EXPIRE', P .. 'v:' .. dropped, 60) end
  if taken then call('PERSIST', P .. 'v:' .. taken) end
  results[id] = result
  if move[11] then
    call('RPUSH', P .. 'y:' .. id, move[11])
    call('LTRIM', P .. 'y:' .. id, -100, -1)
    h[LISTS] = 1
  end
  if move[12] then
    call('RPUSH', P .. 's:' .. id, unpack(move, 12))
    h[LISTS] = 1
  end
  enter(id)
  return true
end

-- name: unpark
-- requires: leave enter is_timed
local function unpark(id)
  local h = heads[id]
  leave(id)
  if is_timed(h[WAITING_FOR]) then h[DUE] = math.min(h[DUE], now) end
  h[STATE], h[WAITING_FOR] = h[DUE] <= now and PENDING or SCHEDULED, false
  enter(id)
end

-- name: set_payload
-- requires: memory skip reference bin
-- Replace the payload of a job by an item that the client made.
local function set_payload(id, item)
  local j = bodies[id]
  local from = skip(j, 1)
  local dropped, taken = reference(j, from), reference(item, 1)
  if dropped and dropped ~= taken then call('EXPIRE', P .. 'v:' .. dropped, 60) end
  if taken then call('PERSIST', P .. 'v:' .. taken) end
  bodies[id] = j:sub(1, from - 1) .. item .. j:sub(skip(j, from))
  call('SET', P .. 'j:' .. id, bodies[id])
end

-- name: has_payload
-- requires: memory skip reference bin
local function has_payload(id, payload)
  local j = bodies[id]
  local from = skip(j, 1)
  local ref = reference(j, from)
  if ref then return call('GET', P .. 'v:' .. ref) == payload end
  return bin(payload) == j:sub(from, skip(j, from) - 1)
end

-- name: moves
-- requires: load leave enter unpark set_payload has_payload forget free_key
-- Each verb returns whether the job's state allowed it. a = reason, waiting_for, payload item, payload
-- before, steps of the next life or 'refused', worker, token; false where there is none.
local moves = {}

function moves.cancel(id, h, a)
  if h[STATE] > RUNNING or h[SAGA] == 'undoing' then return false end
  leave(id)
  h[REASON] = a[1]
  if h[STATE] == RUNNING then
    h[CANCEL] = 1
  elseif h[SAGA] == 'ready' then
    h[STATE], h[DUE], h[WAITING_FOR], h[CANCEL] = PENDING, now, false, 1
  else
    h[STATE], h[FINISHED] = CANCELLED, now
  end
  enter(id)
  return true
end

function moves.retry(id, h, a)
  if h[STATE] ~= SCHEDULED or h[WAITING_FOR] then return false end
  leave(id)
  h[STATE], h[DUE], h[REASON] = PENDING, now, a[1]
  enter(id)
  return true
end

function moves.redrive(id, h, a)
  if h[STATE] ~= DEAD or a[5] == 'refused' then return false end
  leave(id)
  h[STATE], h[DUE], h[EXPIRES], h[FINISHED], h[STARTED], h[WORKER] = PENDING, now, 0, 0, 0, ''
  h[FAILURES], h[CRASHES], h[CANCEL], h[REASON] = 0, 0, 0, a[1]
  if h[SAGA] == 'over' then
    h[SAGA] = ''
    call('DEL', P .. 's:' .. id)
    if a[5] and #a[5] > 0 then call('RPUSH', P .. 's:' .. id, unpack(a[5])) end
  end
  if a[3] then set_payload(id, a[3]) end
  enter(id)
  return true
end

function moves.park(id, h, a)
  if h[STATE] ~= SCHEDULED and h[STATE] ~= PENDING then return false end
  leave(id)
  h[STATE], h[WAITING_FOR] = SCHEDULED, a[2]
  enter(id)
  return true
end

function moves.unpark(id, h, a)
  if h[STATE] ~= SCHEDULED or h[WAITING_FOR] ~= a[2] then return false end
  unpark(id)
  return true
end

function moves.reseal(id, h, a)
  local state = h[STATE]
  if state ~= SCHEDULED and state ~= PENDING and state ~= DEAD then return false end
  if a[4] and not has_payload(id, a[4]) then return false end
  if a[3] then set_payload(id, a[3]) end
  return true
end

function moves.take(id, h, a)
  if h[STATE] ~= PENDING then return false end
  leave(id)
  h[STATE], h[ATTEMPT], h[WORKER], h[TOKEN] = RUNNING, h[ATTEMPT] + 1, a[6], a[7]
  h[STARTED], h[PROGRESS] = now, false
  enter(id)
  free_key(id, h, true)
  return true
end

-- name: move
-- requires: moves shown lists
-- Do a verb; return the job after it as the client reads it, with its lists, or false.
local function move(verb, id, a)
  load({id})
  local h = heads[id]
  if not h then return false end
  if verb ~= 'purge' then
    if not moves[verb](id, h, a) then return false end
    return shown(id), lists({id})
  end
  if h[STATE] <= RUNNING then return false end
  local last, more = shown(id), lists({id})
  leave(id)
  forget({id})
  heads[id], bodies[id], dirty[id] = false, false, nil
  return last, more
end
