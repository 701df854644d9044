-- Start pending jobs under a live lease, ask by ask, until the bound of a call is reached.
-- ARGV = worker, token, most jobs, most bytes, number of budgets, their sizes; lane, count (below 0:
-- in order), bits of the budgets for each ask
-- Returns now, number, jobs, lists, the ask to go on with or 0, how many that has left, budgets left
-- flags: allow-oom
-- requires: memory parts count free_key is_live lists finish
local worker, token, most, most_bytes = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local n_budgets = tonumber(ARGV[5])
local left, out, taken, extra, size, stop, rest = {}, {}, {}, {}, 0, 0, 0
for i = 1, n_budgets do left[i] = tonumber(ARGV[5 + i]) end
if not is_live(worker) then return {now, 0, '', {}, 0, 0, left} end
local PIECE, AHEAD = 50, 2000000

local function draw(bits, jobs)
  for i = 1, n_budgets do
    if bit.band(bits, bit.lshift(1, i - 1)) ~= 0 then left[i] = left[i] - jobs end
  end
end

local function start(lane, room)
  local popped = call('ZPOPMIN', P .. 'L:' .. lane, room)
  local got = #popped / 2
  if got == 0 then return 0 end
  local keys, set, queue, before = {}, {}, parts(lane)[1], #taken
  for i = 1, got do
    local id = popped[2 * i - 1]:sub(7)
    taken[before + i] = id
    keys[2 * i - 1], keys[2 * i] = P .. 'j:' .. id, P .. 'h:' .. id
  end
  local rows = call('MGET', unpack(keys))
  local made, due
  for i = 1, got do
    local j, raw, id = rows[2 * i - 1], rows[2 * i], taken[before + i]
    if raw then
      local off, h = cmsgpack.unpack_one(raw)
      h[STATE], h[ATTEMPT], h[WORKER], h[TOKEN] = RUNNING, h[ATTEMPT] + 1, worker, token
      h[STARTED], h[PROGRESS] = now, false
      free_key(id, h, true)
      if h[LISTS] ~= 0 then heads[id] = h; extra[#extra + 1] = id end
      if h[CANCEL] == 1 then call('SADD', P .. 'cancel:' .. worker, id) end
      raw = cmsgpack.pack(h) .. (off == -1 and NIL or raw:sub(off + 1))
      out[#out + 1] = '\154\196\16' .. id .. j .. raw
    else
      local score = popped[2 * i]
      if score ~= due then -- Jobs that came together have the same head.
        made = cmsgpack.pack({RUNNING, tonumber(score), 1, 0, 0, 0, worker, token, now, 0, false, false,
          false, '', 0, false, false, '', 0, queue, ''}) .. NIL
        due = score
      end
      raw = made
      out[#out + 1] = '\154\196\16' .. id .. j .. '\192\192'
    end
    size = size + #out[#out]
    set[2 * i - 1], set[2 * i] = keys[2 * i], raw
  end
  call('MSET', unpack(set))
  count(PENDING, queue, -got)
  count(RUNNING, queue, got)
  lanes[lane] = true
  return got
end

for at = 6 + n_budgets, #ARGV, 3 do
  local lane, asked, bits = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local blocked = asked < 0
    and call('ZCOUNT', P .. 'L:' .. lane, '(' .. string.format('%.0f', now + AHEAD), '+inf') > 0
  local room = blocked and 0 or math.abs(asked)
  for i = 1, n_budgets do
    if bit.band(bits, bit.lshift(1, i - 1)) ~= 0 and left[i] < room then room = left[i] end
  end
  while room > 0 do
    if #taken >= most or size >= most_bytes then stop, rest = at, room; break end
    local piece = math.min(room, most - #taken, PIECE)
    local got = start(lane, piece)
    draw(bits, got)
    room = got < piece and 0 or room - got
  end
  if stop ~= 0 then break end
end
if #taken > 0 then
  call('SADD', P .. 'run:' .. worker, unpack(taken))
  call('SADD', P .. 'holders', worker)
  finish()
end
local ask = stop == 0 and 0 or (stop - 6 - n_budgets) / 3 + 1
return {now, #taken, table.concat(out), lists(extra), ask, rest, left}
