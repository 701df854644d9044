-- Jobs by their ids: number, jobs, lists unless brief.
-- ARGV = '1' if brief; ids
-- flags: no-writes
-- requires: load shown lists
local ids, out = {unpack(ARGV, 2)}, {}
load(ids)
for _, id in ipairs(ids) do
  if bodies[id] then out[#out + 1] = shown(id) end
end
return {#out, table.concat(out), ARGV[1] == '1' and {} or lists(ids)}
