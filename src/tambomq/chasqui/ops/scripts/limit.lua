-- limit: ask the rate limiter how many jobs may start now.
--
-- KEYS  limiter      hash  {chasqui:<queue>}:tambo:limiter
-- ARGV  max_starts   jobs that may start in a window
--       duration_ms  length of a window, which begins with the first start in it
--       wanted       jobs that the caller wants to start
-- REPLY how many may start, and the ms to wait before asking for the others

local limiter = KEYS[1]
local max_starts, duration_ms, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local started = tonumber(redis.call('HGET', limiter, 'started') or '0')
local ends = tonumber(redis.call('HGET', limiter, 'ends') or '0')
-- A window that ends too late was made with another limit, or by another clock: start a new one.
if now >= ends or ends > now + duration_ms then
  started, ends = 0, now + duration_ms
end
local allowed = math.max(0, math.min(wanted, max_starts - started))
if allowed > 0 then
  redis.call('HSET', limiter, 'started', started + allowed, 'ends', string.format('%.0f', ends))
  redis.call('PEXPIRE', limiter, duration_ms)
end
return {allowed, allowed < wanted and ends - now or 0}
