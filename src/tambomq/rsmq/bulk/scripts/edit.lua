#!lua
-- edit: give a message that no consumer has received another body, and make it visible.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
-- ARGV  id        the message
--       body      its new body
-- REPLY 1 done, 0 not there; -1 it was received; the maximum in bytes if the body is longer; nil if
--       the queue does not exist

local messages, data = KEYS[1], KEYS[2]
local id, body = ARGV[1], ARGV[2]

local stored = redis.call('HMGET', data, 'vt', 'maxsize', id, id .. ':rc')
if not stored[1] then
  return nil
elseif not stored[3] or not redis.call('ZSCORE', messages, id) then
  return 0
elseif (tonumber(stored[4]) or 0) > 0 then
  return -1
end
local maxsize = tonumber(stored[2]) or -1
if maxsize ~= -1 and #body > maxsize then
  return maxsize
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- One that waits keeps its place.
local at = tonumber(redis.call('ZSCORE', messages, id))
redis.call('HSET', data, id, body)
redis.call('ZADD', messages, math.min(at, now), id)
return 1
