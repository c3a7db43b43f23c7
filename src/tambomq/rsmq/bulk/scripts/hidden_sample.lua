#!lua flags=no-writes
-- hidden_sample: how many of some hidden messages were received before; the others are delayed.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
-- ARGV  now       ms; later messages are hidden
--       count     of messages to look at, from either end
-- REPLY how many were looked at, and how many of them have a receive count

local messages, data = KEYS[1], KEYS[2]
local now, count = '(' .. ARGV[1], tonumber(ARGV[2])

local soonest = redis.call('ZRANGE', messages, now, '+inf', 'BYSCORE', 'LIMIT', 0, count)
local seen, fields = {}, {}
local function look_at(ids)
  for _, id in ipairs(ids) do
    if not seen[id] then
      seen[id] = true
      fields[#fields + 1] = id .. ':rc'
    end
  end
end
look_at(soonest)
if #soonest == count then
  look_at(redis.call('ZRANGE', messages, '+inf', now, 'BYSCORE', 'REV', 'LIMIT', 0, count))
end
local received = 0
for _, count_of in ipairs(#fields > 0 and redis.call('HMGET', data, unpack(fields)) or {}) do
  if count_of then
    received = received + 1
  end
end
return {#fields, received}
