-- End leases that ran out, and take over jobs of workers without one, in order of arrival.
-- ARGV = worker, token, limit
-- flags: allow-oom
-- requires: load leave enter is_live shown lists write_jobs finish
local worker, token, limit, MOST = ARGV[1], ARGV[2], tonumber(ARGV[3]), 1000
local live, own = is_live(worker)
if not live or now - own[5] < tonumber(own[3]) then return {0, '', {}} end
for _, other in ipairs(call('SMEMBERS', P .. 'workers')) do
  if not is_live(other) then call('HSET', P .. 'w:' .. other, 'ended', '1') end
end
local ids, arrivals, out = {}, {}, {}
for _, holder in ipairs(call('SMEMBERS', P .. 'holders')) do
  if call('SCARD', P .. 'run:' .. holder) == 0 then
    call('SREM', P .. 'holders', holder)
  elseif not is_live(holder) then
    for _, id in ipairs(call('SRANDMEMBER', P .. 'run:' .. holder, MOST)) do
      ids[#ids + 1] = id
      arrivals[id] = call('GETRANGE', P .. 'j:' .. id, -6, -1)
    end
  end
  if #ids >= MOST then break end
end
table.sort(ids, function(a, b) return arrivals[a] < arrivals[b] end)
for i = #ids, limit + 1, -1 do ids[i] = nil end
load(ids)
for _, id in ipairs(ids) do
  leave(id)
  heads[id][TOKEN] = token
  out[#out + 1] = shown(id)
  heads[id][WORKER] = worker
  enter(id)
end
local more = lists(ids)
write_jobs()
finish()
return {#ids, table.concat(out), more}
