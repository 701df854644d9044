-- Commit a batch whose pieces were all written: from now on it is carried out, if need be by others.
-- ARGV = batch, number of pieces, microseconds in which its producer may carry it out itself
-- requires: begin
local key, pieces = P .. 'stage:' .. ARGV[1], tonumber(ARGV[2])
if call('EXISTS', key) == 1 then return 1 end
for i = 0, pieces - 1 do
  if call('EXISTS', key .. ':' .. i) == 0 then return 0 end
end
for i = 0, pieces - 1 do call('PERSIST', key .. ':' .. i) end
call('SET', key, 0, 'EX', 86400)
call('ZADD', P .. 'todo', now + ARGV[3], 'stage:' .. ARGV[1] .. ':' .. pieces)
return 1
