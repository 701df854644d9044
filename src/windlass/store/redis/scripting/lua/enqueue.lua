-- Plain jobs by lanes, all or none; 0 if some id is known already, -1 if a payload is missing.
-- ARGV = number of lanes, of references, of jobs; lane and count for each; the references; id and
-- job for each; and, if their places were reserved, the first of them and the time of that
-- requires: memory u64 count finish
local n_lanes, n_refs, total = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local values = {}
for i = 1, n_refs do values[i] = P .. 'v:' .. ARGV[3 + 2 * n_lanes + i] end
if n_refs > 0 and call('EXISTS', unpack(values)) < n_refs then return -1 end
local at = 4 + 2 * n_lanes + n_refs
local arrival, due = tonumber(ARGV[at + 2 * total]), now
if arrival then
  due = tonumber(ARGV[at + 2 * total + 1])
else
  arrival = call('INCRBY', P .. 'ver', 2 * total) - 2 * total
end
local stamp = u64(due) .. '\207\0\0'
local score = string.format('%.0f', due) -- As text: a number is written by sprintf, once for each job.
local set, ids, members = {}, {}, {}
for i = 1, total do
  local id, seq = ARGV[at], struct.pack('>I6', arrival + 2 * i)
  set[2 * i - 1], set[2 * i] = P .. 'j:' .. id, ARGV[at + 1] .. stamp .. seq
  ids[2 * i - 1], ids[2 * i] = '0', id
  members[i] = seq .. id
  at = at + 2
end
if call('MSETNX', unpack(set)) == 0 then return 0 end
for i = 1, n_refs do call('PERSIST', values[i]) end
call('ZADD', P .. 'all', unpack(ids))
local done, firsts = 0, {}
for l = 1, n_lanes do
  local lane, jobs = ARGV[2 + 2 * l], tonumber(ARGV[3 + 2 * l])
  local of, places = parts(lane), {}
  for k = 1, jobs do places[2 * k - 1], places[2 * k] = score, members[done + k] end
  done = done + jobs
  call('ZADD', P .. 'L:' .. lane, unpack(places))
  firsts[2 * l - 1], firsts[2 * l] = due - of[3] * 60000000, lane
  count(PENDING, of[1], jobs)
  woken[lane] = jobs
end
call('ZADD', P .. 'heads', 'LT', unpack(firsts))
finish()
return 1
