-- One plain job, by hand: most enqueues are one of these.
-- Returns 1, 0 if the id is known already, -1 if its payload is missing
-- ARGV = lane, queue, kind, urgency bonus, reference of a large payload or '', id, job
-- requires: begin wake
local lane, id = ARGV[1], ARGV[6]
if ARGV[5] ~= '' and call('EXISTS', P .. 'v:' .. ARGV[5]) == 0 then return -1 end
local arrival = struct.pack('>I6', call('INCR', P .. 'seq'))
local j = ARGV[7] .. '\207' .. struct.pack('>I8', now) .. '\207\0\0' .. arrival
if call('SETNX', P .. 'j:' .. id, j) == 0 then return 0 end
if ARGV[5] ~= '' then call('PERSIST', P .. 'v:' .. ARGV[5]) end
call('ZADD', P .. 'all', 0, id)
call('ZADD', P .. 'L:' .. lane, now, arrival .. id)
call('ZADD', P .. 'heads', 'LT', now - ARGV[4], lane)
call('HINCRBY', P .. 'n', PENDING .. ARGV[2], 1)
local version = call('INCR', P .. 'ver')
local groups = call('HGETALL', P .. 'zz')
if #groups > 0 then
  wake(groups, ARGV[2], ARGV[3], 1, struct.pack('>I8I8', now, version) .. lane)
end
return 1
