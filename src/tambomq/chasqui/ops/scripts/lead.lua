-- lead: become or stay the leader, if nobody else is and the clocks agree.
--
-- KEYS  lock    string  {chasqui:<queue>}:promoter:lock or …:scheduler:lock
-- ARGV  holder  who
--       ttl     seconds until another may, unless this is said again
--       clock   the time by the clock of who would lead, in ms; '' if that decides nothing
--       apart   ms by which it may differ from the server's
-- REPLY 1 leads, 0 another does or the clocks differ; the server's time in ms

local lock = KEYS[1]
local holder, ttl, clock, apart = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if clock ~= '' and math.abs(now - clock) > tonumber(apart) then
  -- Another, whose clock is right, need not wait for the lock to run out.
  if redis.call('GET', lock) == holder then
    redis.call('DEL', lock)
  end
  return {0, now}
end
return {leads(lock, holder, ttl) and 1 or 0, now}
