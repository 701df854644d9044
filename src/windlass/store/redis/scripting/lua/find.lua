-- Jobs in order of their ids that match a filter: number, jobs, lists, the last id looked at or '',
-- how many were looked at.
-- ARGV = first and last id as ZRANGE takes them, '1' if the oldest come first, limit, how many to look
-- at, '1' if brief, filter
-- filter = states ('1' for each), kind, queue, worker, fingerprint, key, created before, created since
-- (false where there is none)
-- flags: no-writes
-- requires: load shown lists
local from, to, oldest, limit, budget = ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4]), tonumber(ARGV[5])
local filter = cmsgpack.unpack(ARGV[7])
local states, kind, queue, worker = filter[1], filter[2], filter[3], filter[4]
local fingerprint, key, before, since = filter[5], filter[6], filter[7], filter[8]

local function matches(id)
  local h, j = heads[id], bodies[id]
  if not h or not (states == '' or states:find(h[STATE], 1, true)) then return false end
  local of = parts(lane_of(j))
  if (kind and kind ~= of[2]) or (queue and queue ~= of[1]) or (key and key ~= of[4]) then return false end
  if (worker and worker ~= h[WORKER]) or (fingerprint and fingerprint ~= h[FINGERPRINT]) then return false end
  if not before and not since then return true end
  local created = struct.unpack('>I8', j, #j - 16)
  return (not before or created < before) and (not since or created >= since)
end

local out, ids, last = {}, {}, ''
while #ids < limit and budget > 0 do
  local size = math.min(budget, 200)
  local page = oldest and call('ZRANGE', P .. 'all', from, to, 'BYLEX', 'LIMIT', 0, size)
    or call('ZRANGE', P .. 'all', to, from, 'BYLEX', 'REV', 'LIMIT', 0, size)
  if #page == 0 then last = ''; break end
  load(page)
  for _, id in ipairs(page) do
    last = id
    budget = budget - 1
    if matches(id) then ids[#ids + 1] = id end
    if #ids >= limit then break end
  end
  if oldest then from = '(' .. last else to = '(' .. last end
end
for i, id in ipairs(ids) do out[i] = shown(id) end
return {#ids, table.concat(out), ARGV[6] == '1' and {} or lists(ids), last, tonumber(ARGV[5]) - budget}
