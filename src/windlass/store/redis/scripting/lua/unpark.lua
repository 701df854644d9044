-- Unpark some of the many jobs that waited for a name; return whether there are more.
-- ARGV = entry of the list of what is left to do, its number, name, how many
-- flags: allow-oom
-- requires: load unpark write_jobs finish
local key = P .. 'unpark:' .. ARGV[2]
local popped, ids = call('ZPOPMIN', key, ARGV[4]), {}
for i = 1, #popped, 2 do ids[#ids + 1] = popped[i]:sub(7) end
if #ids > 0 then load(ids) end
for _, id in ipairs(ids) do
  local h = heads[id]
  if h and h[STATE] == SCHEDULED and h[WAITING_FOR] == ARGV[3] then unpark(id) end
end
write_jobs()
finish()
if call('EXISTS', key) == 1 then return 1 end
call('ZREM', P .. 'todo', ARGV[1])
return 0
