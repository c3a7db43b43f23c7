#!lua flags=allow-oom
-- raise_alarms: publish the alarms of one process, or remove them.
--
-- KEYS  alarms  hash  tambo:alarms
-- ARGV  source  the process
--       ttl_ms  how long they hold
--       text    the alarms as JSON, or '' for none
-- REPLY 1

local alarms = KEYS[1]
local source, ttl_ms, text = ARGV[1], ARGV[2], ARGV[3]

if text == '' then
  redis.call('HDEL', alarms, source)
  return 1
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Of processes that died, one after the other, while the alarm lasted.
local others = redis.call('HGETALL', alarms)
for i = 1, #others, 2 do
  local till = tonumber(others[i + 1]:match('^(%d+) '))
  if till and till <= now then
    redis.call('HDEL', alarms, others[i])
  end
end
local till = now + ttl_ms
redis.call('HSET', alarms, source, string.format('%.0f ', till) .. text)
-- Another process may have published alarms that hold for longer.
if redis.call('PTTL', alarms) < tonumber(ttl_ms) then
  redis.call('PEXPIRE', alarms, ttl_ms)
end
return 1
