-- Records with their versions, and the time.
-- ARGV = names
-- flags: no-writes
-- requires: begin
local known = #ARGV > 0 and call('HMGET', P .. 'rec', unpack(ARGV)) or {}
for i = 1, #ARGV do known[i] = known[i] or '' end
return {now, known}
