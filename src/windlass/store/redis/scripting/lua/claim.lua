-- Start pending jobs under a live lease, ask by ask, until the bound of a call is reached.
-- ARGV = worker, token, most jobs (each lane after the first counts as two of them), most bytes, number of
-- budgets, their sizes; lane, count (below 0: in order), bits of the budgets for each ask
-- Returns now, number, jobs, lists, the ask to go on with or 0, how many that has left, budgets left,
-- and the asks that emptied their lanes
-- flags: allow-oom
-- requires: memory parts count free_key is_live lists finish
local worker, token, most, most_bytes = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local n_budgets = tonumber(ARGV[5])
local left, out, taken, extra, size, stop, rest = {}, {}, {}, {}, 0, 0, 0
-- What was taken out of lanes and not started yet: their members with scores, and the queue, for each.
local popped, waiting = {}, 0
-- Lanes that gave less than they could: a later ask for the rest of one is passed over.
local dry, emptied = {}, {}
for i = 1, n_budgets do left[i] = tonumber(ARGV[5 + i]) end
if not is_live(worker) then return {now, 0, '', {}, 0, 0, left, {}} end
-- The server takes as long to look at a lane as to start two jobs of it.
local PIECE, AHEAD, PER_LANE, looked_at = 50, 2000000, 2, 0

local function draw(bits, jobs)
  for i = 1, n_budgets do
    if bit.band(bits, bit.lshift(1, i - 1)) ~= 0 then left[i] = left[i] - jobs end
  end
end

-- Start the jobs that were taken out of their lanes, of one lane or of many.
local function start()
  if waiting == 0 then return end
  local keys, set, first, n = {}, {}, #taken - waiting, #out
  for i = 1, waiting do
    local id = taken[first + i]
    keys[2 * i - 1], keys[2 * i] = P .. 'j:' .. id, P .. 'h:' .. id
  end
  local rows, at = call('MGET', unpack(keys)), 0
  for l = 1, #popped, 2 do
    local members, queue, made, due = popped[l], popped[l + 1], nil, nil
    for i = 2, #members, 2 do
      local id, j, raw = taken[first + 1 + at / 2], rows[at + 1], rows[at + 2]
      out[n + 1], out[n + 2], out[n + 3] = '\154\196\16', id, j
      if raw then
        local off, h = cmsgpack.unpack_one(raw)
        h[STATE], h[ATTEMPT], h[WORKER], h[TOKEN] = RUNNING, h[ATTEMPT] + 1, worker, token
        h[STARTED], h[PROGRESS] = now, false
        free_key(id, h, true)
        if h[LISTS] ~= 0 then heads[id] = h; extra[#extra + 1] = id end
        if h[CANCEL] == 1 then call('SADD', P .. 'cancel:' .. worker, id) end
        raw = cmsgpack.pack(h) .. (off == -1 and NIL or raw:sub(off + 1))
        out[n + 4] = raw
      else
        if members[i] ~= due then -- Jobs that came together have the same head.
          due = members[i]
          made = cmsgpack.pack({RUNNING, tonumber(due), 1, 0, 0, 0, worker, token, now, 0, false, false,
            false, '', 0, false, false, '', 0, queue, ''}) .. NIL
        end
        raw = made
        out[n + 4] = '\192\192'
      end
      set[at + 1], set[at + 2] = keys[at + 2], raw
      at, n, size = at + 2, n + 4, size + 19 + #j + #out[n + 4]
    end
  end
  call('MSET', unpack(set))
  popped, waiting = {}, 0
end

local function take(lane, room)
  local members, queue = call('ZPOPMIN', P .. 'L:' .. lane, room), parts(lane)[1]
  local got, before = #members / 2, #taken
  if got == 0 then return 0 end
  for i = 1, got do taken[before + i] = members[2 * i - 1]:sub(7) end
  popped[#popped + 1], popped[#popped + 2] = members, queue
  waiting = waiting + got
  count(PENDING, queue, -got)
  count(RUNNING, queue, got)
  lanes[lane] = true
  return got
end

for at = 6 + n_budgets, #ARGV, 3 do
  local lane, asked, bits = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local blocked = asked < 0
    and call('ZCOUNT', P .. 'L:' .. lane, '(' .. string.format('%.0f', now + AHEAD), '+inf') > 0
  local room = (blocked or dry[lane]) and 0 or math.abs(asked)
  for i = 1, n_budgets do
    if bit.band(bits, bit.lshift(1, i - 1)) ~= 0 and left[i] < room then room = left[i] end
  end
  if room > 0 and at > 6 + n_budgets then looked_at = looked_at + PER_LANE end
  while room > 0 do
    if #taken + looked_at >= most or size >= most_bytes then stop, rest = at, room; break end
    local piece = math.min(room, most - #taken - looked_at, PIECE - waiting)
    local got = take(lane, piece)
    if waiting == PIECE then start() end
    draw(bits, got)
    room = room - got
    if got < piece then
      room, dry[lane] = 0, true
      emptied[#emptied + 1] = (at - 6 - n_budgets) / 3 + 1
    end
  end
  if stop ~= 0 then break end
end
start()
if #taken > 0 then
  call('SADD', P .. 'run:' .. worker, unpack(taken))
  call('SADD', P .. 'holders', worker)
  finish()
end
local ask = stop == 0 and 0 or (stop - 6 - n_budgets) / 3 + 1
return {now, #taken, table.concat(out), lists(extra), ask, rest, left, emptied}
