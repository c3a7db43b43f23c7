#!lua
-- discard: delete dead letters, and keep them aside for a while.
--
-- KEYS  messages  zset    <ns>:<queue>-dead
--       data      hash    <ns>:<queue>-dead:Q
--       receipts  hash    <ns>:<queue>-dead:receipts
--       aside     stream  <ns>:<queue>:discarded:<id>
-- ARGV  keep_s    how long they can be restored, in seconds
--       id        …       the messages
-- REPLY how many; one that a consumer has in flight stays

local messages, data, receipts, aside = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local keep_s = ARGV[1]

-- Read the keys first: one of another type then fails before anything is written.
redis.call('XLEN', aside)
redis.call('HLEN', receipts)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local count = 0
for i = 2, #ARGV do
  local id = ARGV[i]
  local at, was = redis.call('ZSCORE', messages, id), redis.call('HMGET', data, id, id .. ':why', id .. ':rc', id .. ':fr')
  if at and was[1] and tonumber(at) <= now then
    redis.call('XADD', aside, '*', 'id', id, 'at', at, 'body', was[1], 'why', was[2] or '', 'rc', was[3] or '', 'fr', was[4] or '')
    redis.call('ZREM', messages, id)
    redis.call('HDEL', data, id, id .. ':why', id .. ':rc', id .. ':fr')
    redis.call('HDEL', receipts, id)
    count = count + 1
  end
end
redis.call('EXPIRE', aside, keep_s)
return count
