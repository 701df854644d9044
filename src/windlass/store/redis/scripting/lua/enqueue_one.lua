-- One plain job, by hand: most enqueues are one of these. While nobody sleeps, it makes no function.
-- Returns 1, or 2 if somebody may sleep; 0 if the id is known already, -1 if its payload is missing
-- ARGV = lane, queue, id, job, urgency bonus, reference of a large payload or nothing
-- requires: begin
local lane, queue, id, reference = ARGV[1], ARGV[2], ARGV[3], ARGV[6]
if reference and call('EXISTS', P .. 'v:' .. reference) == 0 then return -1 end
local version = call('INCRBY', P .. 'ver', '2')
local j = ARGV[4] .. struct.pack('>BI8BHI6', 207, now, 207, 0, version)
if call('SETNX', P .. 'j:' .. id, j) == 0 then return 0 end
if reference then call('PERSIST', P .. 'v:' .. reference) end
call('ZADD', P .. 'all', '0', id)
local is_handed_over = false

if version % 2 == 1 then
  -- here: parts is_live wake
  local kind = parts(lane)[2]

  -- Claim the job for a sleeper that asks for its kind, and send it along; return whether it was done.
  -- An ask is worker, token and kinds, parted by \2. It is met once; that is kept until the sleeper has the job.
  local function hand_over(sleeper)
    local ask = P .. 'ask:' .. sleeper
    local worker, token, kinds = (call('GET', ask) or ''):match('^([^\1\2]+)\2(%d+)\2(.*)$')
    if not worker or not kinds:find('\1' .. kind .. '\1', 1, true) then return false end
    -- A worker that has missed a heartbeat may have died: PUBLISH counts pattern subscribers, and connections
    -- whose other end has gone. Heartbeats come every two seconds, or at a third of the lease.
    local live, w = is_live(worker)
    if not live or now - w[2] > 2.25 * math.min(2000000, w[3] / 3) then return false end
    local row = '\154\196\16' .. id .. j .. '\192\192'
    local word = '\1' .. struct.pack('>I8', now) .. token .. '\2' .. row
    -- Not on replicas: a worker that still listens to a former master would take a job that it was not given.
    redis.set_repl(redis.REPL_NONE)
    local heard = call(PUBLISH, P .. 'wake:' .. sleeper, word)
    redis.set_repl(redis.REPL_ALL)
    if heard == 0 then return false end
    call('DEL', ask)
    call('SADD', P .. 'met:' .. sleeper, token .. '\2' .. id)
    call('EXPIRE', P .. 'met:' .. sleeper, 3600)
    call('SET', P .. 'h:' .. id, cmsgpack.pack({RUNNING, now, 1, 0, 0, 0, worker, token, now, 0, false, false,
      false, '', 0, false, false, '', 0, queue, ''}) .. NIL)
    call('SADD', P .. 'run:' .. worker, id)
    call('SADD', P .. 'holders', worker)
    is_handed_over = true
    return true
  end

  local groups = call('HGETALL', P .. 'zz')
  if #groups > 0 then
    -- Not past a job that waits in the same lane, nor one whose payload the worker would have to fetch.
    local may_hand_over = not reference and call('EXISTS', P .. 'L:' .. lane) == 0
    local word = struct.pack('>I8I8', now, (version - 1) / 2) .. lane
    wake(groups, queue, kind, 1, word, may_hand_over and hand_over)
  else
    call('INCRBY', P .. 'ver', '-1')
  end
end
if is_handed_over then
  call('HINCRBY', P .. 'n', RUNNING .. queue, '1')
  return 2
end
call('ZADD', P .. 'L:' .. lane, now, j:sub(-6) .. id)
call('ZADD', P .. 'heads', 'LT', now - ARGV[5], lane)
call('HINCRBY', P .. 'n', '2' .. queue, '1') -- As text: a number is written by sprintf.
return 1 + version % 2
