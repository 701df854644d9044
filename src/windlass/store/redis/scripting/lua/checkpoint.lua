-- Add to the step logs of running jobs, each under its fence; a '1' or '0' for each.
-- ARGV = id, token, saga, number of steps, steps... for each
-- flags: allow-oom
-- requires: load write_jobs
local at, out = 1, {}
while at <= #ARGV do
  local id, n = ARGV[at], tonumber(ARGV[at + 3])
  load({id})
  local h = heads[id]
  local held = h and h[STATE] == RUNNING and h[TOKEN] == ARGV[at + 1]
  if held then
    if n > 0 then
      call('RPUSH', P .. 's:' .. id, unpack(ARGV, at + 4, at + 3 + n))
      h[LISTS] = 1
    end
    if ARGV[at + 2] ~= '' then h[SAGA] = ARGV[at + 2] end
    dirty[id] = true
  end
  out[#out + 1] = held and '1' or '0'
  at = at + 4 + n
end
write_jobs()
return table.concat(out)
