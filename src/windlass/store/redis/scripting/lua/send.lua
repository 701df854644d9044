-- Add news, each once.
-- ARGV = topic, id, body for each
-- requires: send
for at = 1, #ARGV, 3 do send(ARGV[at], ARGV[at + 1], ARGV[at + 2], now) end
return 1
