-- Jobs with options, or with ids that may be known already; id and 1 if it is a holder's, for each.
-- ARGV = id, job, options for each
-- Returns -1 if a payload is missing.
-- requires: load arrive add is_missing skip write_jobs finish
local answer, ids = {}, {}
for at = 2, #ARGV, 3 do
  if is_missing(ARGV[at], skip(ARGV[at], 1)) then return -1 end
  ids[#ids + 1] = ARGV[at - 1]
end
load(ids)
expected = #ids
for at = 1, #ARGV, 3 do
  local id, is_duplicate = add(ARGV[at], ARGV[at + 1], cmsgpack.unpack(ARGV[at + 2]))
  answer[#answer + 1] = id
  answer[#answer + 1] = is_duplicate
end
write_jobs()
finish()
return answer
