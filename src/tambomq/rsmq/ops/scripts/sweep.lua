#!lua flags=allow-oom
-- sweep: dead-letter messages that were visible for longer than their queue's TTL.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       receipts  hash  <ns>:<queue>:receipts
--       bounds    hash  <ns>:<queue>:bounds
-- ARGV  limit     messages at most
-- REPLY how many have expired, and 1 if there may be more; nil if the queue does not exist
-- NEEDS expire, journal_on_queue

local messages, data, receipts, bounds = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local limit = ARGV[1]

if redis.call('HEXISTS', data, 'vt') == 0 then
  return nil
end
local ttl_ms = redis.call('HGET', bounds, 'ttl_ms')
if not ttl_ms then
  return {0, 0}
end
local time = redis.call('TIME')
local expired, has_more = expire(messages, data, receipts, bounds, tonumber(ttl_ms), time, limit)
close_journal()
return {expired, has_more and 1 or 0}
