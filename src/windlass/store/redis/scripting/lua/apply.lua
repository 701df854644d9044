-- A whole change: everything is checked, then everything is written. Scripts are not rolled back.
-- ARGV = document; versions of the records; ids of the news; id, token, result of each settle; id
-- and job of each new one; id, payload item, payload before, expected head ('*': any) of each move
-- document = names, records, alarms, settles, options of new jobs, names to unpark, moves, news,
-- records with the number of moves: name, text before the number, number before, always
-- Returns 'stale', now, records | 'fenced', id | 'missing' | 'done', jobs after their moves, lists, what is left
-- flags: allow-oom
-- requires: is_missing skip load arrive add settle_one unpark move write_jobs finish
local change, MANY = cmsgpack.unpack(ARGV[1]), 200
local names, records, alarms, settles = change[1], change[2], change[3], change[4]
local added, unparked, verbs, heard, counts = change[5], change[6], change[7], change[8], change[9]
local have = #names > 0 and call('HMGET', P .. 'rec', unpack(names)) or {}
for i = 1, #names do have[i] = have[i] or '' end
for i = 1, #names do
  if have[i]:sub(1, 8) ~= ARGV[1 + i] then return {'stale', now, have} end
end
local first_news = 2 + #names
local at = first_news
for _, topic in ipairs(heard) do
  for _ = 1, topic[2] do
    if call('HEXISTS', P .. 'news:' .. topic[1], ARGV[at]) == 0 then return {'stale', now, have} end
    at = at + 1
  end
end
local first_settle, seen = at, {}
for _ = 1, #settles do
  local id = ARGV[at]
  load({id})
  local h = heads[id]
  if seen[id] or not h or h[STATE] ~= RUNNING or h[TOKEN] ~= ARGV[at + 1] then return {'fenced', id} end
  if is_missing(ARGV[at + 2], 1) then return {'missing'} end
  seen[id] = true
  at = at + 3
end
local first_added = at
local first_move = at + 2 * #added
for i = first_added + 1, first_move - 1, 2 do
  if is_missing(ARGV[i], skip(ARGV[i], 1)) then return {'missing'} end
end
at = first_move
for _, verb in ipairs(verbs) do
  if verb[4] and is_missing(ARGV[at + 1], 1) then return {'missing'} end
  if verb[1] == 'redrive' and ARGV[at + 3] ~= '*' then
    load({ARGV[at]})
    local head = heads[ARGV[at]] and packed(ARGV[at]) or ''
    if head ~= ARGV[at + 3] then return {'stale', now, have} end
  end
  at = at + 4
end
local new_ids = {}
for i = 1, #added do new_ids[i] = ARGV[first_added + 2 * i - 2] end
load(new_ids)

-- Nothing was written up to here, and nothing fails from here on.
at = first_news
for _, topic in ipairs(heard) do
  local key = P .. 'news:' .. topic[1]
  for _ = 1, topic[2] do
    call('HDEL', key, ARGV[at])
    at = at + 1
  end
  if call('EXISTS', key) == 0 then call('ZREM', P .. 'topics', topic[1]) end
end
local function write(name, value)
  call('HSET', P .. 'rec', name, struct.pack('>I8', call('INCR', P .. 'seq')) .. value)
  call('ZADD', P .. 'recn', 0, name)
end
for _, record in ipairs(records) do
  if record[2] == false then
    call('HDEL', P .. 'rec', record[1])
    call('ZREM', P .. 'recn', record[1])
    call('ZREM', P .. 'alarm', record[1])
  else
    write(record[1], record[2])
  end
end
for _, alarm in ipairs(alarms) do
  if alarm[2] == false or call('HEXISTS', P .. 'rec', alarm[1]) == 0 then
    call('ZREM', P .. 'alarm', alarm[1])
  else
    call('ZADD', P .. 'alarm', alarm[2], alarm[1])
  end
end
at = first_settle
for _, transition in ipairs(settles) do
  settle_one(ARGV[at], ARGV[at + 1], transition, ARGV[at + 2])
  at = at + 3
end
expected = #added
for i, options in ipairs(added) do
  add(new_ids[i], ARGV[first_added + 2 * i - 1], options)
end
local todo = {}
for _, name in ipairs(unparked) do
  local waiting = P .. 'W:' .. name
  if call('ZCARD', waiting) > MANY then
    -- Too many for one script: they are put aside, and unparked piece by piece.
    local number = string.format('%d', call('INCR', P .. 'seq'))
    local entry = 'unpark:' .. number .. ':' .. name
    call('RENAME', waiting, P .. 'unpark:' .. number)
    call('ZADD', P .. 'todo', now, entry)
    todo[#todo + 1] = entry
  else
    local ids = call('ZRANGE', waiting, 0, -1)
    for i, place in ipairs(ids) do ids[i] = place:sub(7) end
    load(ids)
    for _, id in ipairs(ids) do unpark(id) end
  end
end
local moved, extra, number = {}, {}, 0
at = first_move
for i, verb in ipairs(verbs) do
  local item, before = verb[4] and ARGV[at + 1] or false, verb[5] and ARGV[at + 2] or false
  local after, more = move(verb[1], ARGV[at], {verb[2], verb[3], item, before, verb[6], verb[7], verb[8]})
  moved[i] = after or ''
  if after then number = number + 1 end
  if after and more[1] then extra[#extra + 1] = {i, more[1][2], more[1][3]} end
  at = at + 4
end
for _, count in ipairs(counts) do
  if number > 0 or count[4] then
    write(count[1], count[2] .. string.format('%d', count[3] + number) .. '}')
  end
end
write_jobs()
finish()
return {'done', moved, extra, todo}
