-- The records of topics with their versions, the time, and some of their news.
-- ARGV = topics
-- flags: no-writes
-- requires: begin
local known, news = #ARGV > 0 and call('HMGET', P .. 'rec', unpack(ARGV)) or {}, {}
for i, topic in ipairs(ARGV) do
  known[i] = known[i] or ''
  news[i] = call('HSCAN', P .. 'news:' .. topic, 0, 'COUNT', 1000)[2]
end
return {now, known, news}
