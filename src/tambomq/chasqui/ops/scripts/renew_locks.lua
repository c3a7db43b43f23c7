-- renew_locks: become or stay the leader of many queues, where nobody else is.
--
-- KEYS  promoter, scheduler, specs  …  two locks {chasqui:<queue>}:…:lock, zset {chasqui:<queue>}:repeat
-- ARGV  holder  who
--       ttl     seconds until another may, unless this is said again
--       clock   the time by the clock of who would lead, in ms
--       apart   ms by which it may differ from the server's, for who would schedule
-- REPLY the server's time in ms; then for each queue 1 or 0 for each lock, and the next fire in ms (-1: none)

local holder, ttl, clock, apart = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local agree = math.abs(now - clock) <= tonumber(apart)

-- A lock is written again when two fifths of its time are over, not each time it is looked at.
local function keep(lock)
  local who = redis.pcall('GET', lock)
  if who and who ~= holder then
    return 0
  end
  if not who or redis.call('PTTL', lock) < ttl * 600 then
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
    -- Another, whose clock is right, need not wait for the lock to run out.
    redis.call('DEL', scheduler)
  end
  local head = redis.pcall('ZRANGE', specs, 0, 0, 'WITHSCORES')
  reply[#reply + 1] = keep(promoter)
  reply[#reply + 1] = schedules
  reply[#reply + 1] = head.err and 0 or tonumber(head[2] or -1)
end
return reply
