-- Carry out the next piece of a batch, or return what came of it: an id and '1' if it is a holder's.
-- ARGV = batch, piece, number of pieces
-- A piece is, for each job, its id, the lengths of job and options, job, options.
-- flags: allow-oom
-- requires: load arrive add write_jobs finish
local batch, piece, pieces = P .. 'stage:' .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local key, done = batch .. ':' .. piece, P .. 'done:' .. ARGV[1] .. ':' .. piece
local jobs = call('GET', key)
local function over()
  if piece + 1 == pieces then call('ZREM', P .. 'todo', 'stage:' .. ARGV[1] .. ':' .. pieces) end
end
if not jobs then
  over()
  return call('GET', done) or ''
end
local at, ids, made, options, answer = 1, {}, {}, {}, {}
while at <= #jobs do
  local n, m = struct.unpack('>I4I4', jobs, at + 16)
  ids[#ids + 1] = jobs:sub(at, at + 15)
  made[#ids] = jobs:sub(at + 24, at + 23 + n)
  options[#ids] = jobs:sub(at + 24 + n, at + 23 + n + m)
  at = at + 24 + n + m
end
load(ids)
expected = #ids
for i, id in ipairs(ids) do
  local added, is_duplicate = add(id, made[i], cmsgpack.unpack(options[i]))
  answer[i] = added .. is_duplicate
end
write_jobs()
finish()
call('UNLINK', key)
call('SET', done, table.concat(answer), 'EX', 3600)
call('SET', batch, piece + 1, 'EX', 86400)
over()
return table.concat(answer)
