-- limit: ask whether jobs may start, where only so many may in a while.
--
-- KEYS  limiter      hash  {chasqui:<queue>}:tambo:limiter
-- ARGV  most         jobs that may start in a window
--       duration_ms  how long a window is; it begins with the first start in it
--       wanted       jobs that would start now
-- REPLY how many may, ms to wait before asking for the others

local limiter = KEYS[1]
local most, duration_ms, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local started = tonumber(redis.call('HGET', limiter, 'started') or '0')
local ends = tonumber(redis.call('HGET', limiter, 'ends') or '0')
-- A window that ends later than one can was made by another limit, or another clock.
if now >= ends or ends > now + duration_ms then
  started, ends = 0, now + duration_ms
end
local granted = math.max(0, math.min(wanted, most - started))
if granted > 0 then
  redis.call('HSET', limiter, 'started', started + granted, 'ends', string.format('%.0f', ends))
  redis.call('PEXPIRE', limiter, duration_ms)
end
return {granted, granted < wanted and ends - now or 0}
