-- Now, the version of what waits, when something is due or '', and the most urgent lanes.
-- ARGV = number of lanes
-- flags: no-writes
-- requires: begin
local due = call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2]
local todo = call('ZRANGE', P .. 'todo', 0, 0, 'WITHSCORES')[2]
if todo and (not due or tonumber(todo) < tonumber(due)) then due = todo end
return {now, math.floor((call('GET', P .. 'ver') or 0) / 2), due or '',
  call('ZRANGE', P .. 'heads', 0, ARGV[1] - 1, 'WITHSCORES')}
