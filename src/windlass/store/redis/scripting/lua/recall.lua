-- Give jobs another due time, if they are still where a clock that was set back has left them.
-- ARGV = state, due times above which they are there; id and due time for each
-- flags: allow-oom
-- requires: load leave enter write_jobs finish
local state, above, n = tonumber(ARGV[1]), tonumber(ARGV[2]), 0
for at = 3, #ARGV, 2 do
  local id = ARGV[at]
  load({id})
  local h = heads[id]
  if h and h[STATE] == state and h[DUE] > above and not h[WAITING_FOR] then
    leave(id)
    h[DUE] = tonumber(ARGV[at + 1])
    enter(id)
    n = n + 1
  end
end
write_jobs()
finish()
return n
