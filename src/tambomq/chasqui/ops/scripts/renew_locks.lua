-- renew_locks: take or renew the leader locks of many queues, where no other holder has them.
--
-- KEYS  promoter, scheduler, specs  …  two locks {chasqui:<queue>}:…:lock, zset {chasqui:<queue>}:repeat
-- ARGV  holder  id of the caller
--       ttl     lock TTL in seconds; each call renews it
--       clock   the caller's clock, in ms
--       apart   allowed difference to the server's clock, in ms; a scheduler must be within it
-- REPLY the server's time in ms; then for each queue 1 or 0 for each lock, and the next fire in ms (-1: none)

local holder, ttl, clock, apart = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local agree = math.abs(now - clock) <= tonumber(apart)

-- A lock is renewed only after two fifths of its TTL, not on every call.
local function keep(lock)
  local leader = redis.pcall('GET', lock)
  if leader and leader ~= holder then
    return 0
  end
  if not leader or redis.call('PTTL', lock) < ttl * 600 then
    redis.call('SET', lock, holder, 'EX', ttl)
  end
  return 1
end

local reply = {now}
for i = 1, #KEYS, 3 do
  local promoter, scheduler, specs = KEYS[i], KEYS[i + 1], KEYS[i + 2]
  local schedules = 0
  if agree then
    schedules = keep(scheduler)
  elseif redis.pcall('GET', scheduler) == holder then
    -- Release the lock, so that a leader with a correct clock need not wait for it to expire.
    redis.call('DEL', scheduler)
  end
  local head = redis.pcall('ZRANGE', specs, 0, 0, 'WITHSCORES')
  reply[#reply + 1] = keep(promoter)
  reply[#reply + 1] = schedules
  reply[#reply + 1] = head.err and 0 or tonumber(head[2] or -1)
end
return reply
