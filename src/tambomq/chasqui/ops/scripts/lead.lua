-- lead: take or renew the leader lock, unless another holder has it or the clocks differ.
--
-- KEYS  lock    string  {chasqui:<queue>}:promoter:lock or …:scheduler:lock
-- ARGV  holder  id of the caller
--       ttl     lock TTL in seconds; each call renews it
--       clock   the caller's clock, in ms; '' to skip the check
--       apart   allowed difference to the server's clock, in ms
-- REPLY 1 leads, 0 another does or the clocks differ; the server's time in ms
-- NEEDS acquire_leadership

local lock = KEYS[1]
local holder, ttl, clock, apart = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if clock ~= '' and math.abs(now - clock) > tonumber(apart) then
  -- Release the lock, so that a leader with a correct clock need not wait for it to expire.
  if redis.call('GET', lock) == holder then
    redis.call('DEL', lock)
  end
  return {0, now}
end
return {acquire_leadership(lock, holder, ttl) and 1 or 0, now}
