-- Record the progress of a running job under its fence.
-- ARGV = id, token, progress
-- flags: allow-oom
-- requires: load write_jobs
load({ARGV[1]})
local h = heads[ARGV[1]]
if not h or h[STATE] ~= RUNNING or h[TOKEN] ~= ARGV[2] then return 0 end
h[PROGRESS] = ARGV[3]
dirty[ARGV[1]] = true
write_jobs()
return 1
