-- Renew a lease; 0 if it is not there. Where nothing of the whole store is, everybody hears of that for 12 hours.
-- ARGV = worker, pulse, number of the layout
-- flags: allow-oom
-- requires: begin
local key = P .. 'w:' .. ARGV[1]
local w = call('HMGET', key, 'lease', 'seen', 'since', 'ended')
if not w[1] then
  -- Not by the layout's number, which a producer may have put back meanwhile.
  if call('EXISTS', P .. 'workers') == 0 then
    call('SET', P .. 'emptied', now, 'EX', 43200)
    call('SETNX', P .. 'schema', ARGV[3])
  end
  return 0
end
if w[4] == '1' then return 0 end
if now - w[2] > tonumber(w[1]) or now < tonumber(w[3]) then call('HSET', key, 'since', now) end
call('HSET', key, 'pulse', ARGV[2], 'seen', now, 'until', now + w[1])
return 1
