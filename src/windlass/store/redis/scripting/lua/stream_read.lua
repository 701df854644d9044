-- Whether a job has not ended, and the groups of its stream after a place.
-- ARGV = id, place, limit
-- flags: no-writes
-- requires: load
local id = ARGV[1]
load({id})
local is_live = heads[id] and heads[id][STATE] <= RUNNING
local groups = call('ZRANGEBYSCORE', P .. 'x:' .. id, '(' .. ARGV[2], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[3])
return {is_live and 1 or 0, groups}
