-- The leases of workers.

-- name: is_live
-- requires: begin
-- Return whether a worker has a live lease, and the fields until, seen, lease, ended and since of it.
-- A clock that was set back must not keep the dead alive for as long as it went back.
local function is_live(worker)
  local w = call('HMGET', P .. 'w:' .. worker, 'until', 'seen', 'lease', 'ended', 'since')
  if not w[1] or w[4] == '1' then return false, w end
  return tonumber(w[1]) > now and tonumber(w[2]) <= now + tonumber(w[3]), w
end
