#!lua flags=allow-oom
-- hide: change the visibility timeout of messages.
--
-- KEYS  messages     zset  <ns>:<queue>
--       data         hash  <ns>:<queue>:Q
--       receipts     hash  <ns>:<queue>:receipts
-- ARGV  vt           seconds from now
--       id, receipt  …     a message, and the receipt that must still be valid, or ''
-- REPLY 1 or 0 for each: done, or not found or received again since;
--       nil if the queue does not exist
-- NEEDS receipts, tidy

local messages, data, receipts = KEYS[1], KEYS[2], KEYS[3]
local vt = ARGV[1]

local ids, names = {}, {'vt'}
for i = 2, #ARGV, 2 do
  local id = ARGV[i]
  ids[#ids + 1], names[#names + 1] = id, id .. ':rc'
end
local stored = redis.call('HMGET', data, unpack(names))
if not stored[1] then
  return nil
end
local scored = redis.call('ZMSCORE', messages, unpack(ids))
local known = redis.call('HMGET', receipts, unpack(ids))

local time = redis.call('TIME')
local now, hide_ms = time[1] * 1000 + math.floor(time[2] / 1000), math.floor(vt * 1000 + 0.5)
local span = ' ' .. time[1] .. '.' .. time[2] .. ' ' .. vt

local reply, scores, records = {}, {}, {}
for i, id in ipairs(ids) do
  local receipt, current = ARGV[2 * i + 1], receipt_of(stored[i + 1], known[i])
  reply[i] = scored[i] and (receipt == '' or receipt == current) and 1 or 0
  if reply[i] == 1 then
    scores[#scores + 1], scores[#scores + 2] = now + hide_ms, id
    -- A message received by a client that writes no records has none.
    if known[i] and current ~= stored[i + 1] then
      records[#records + 1], records[#records + 2] = id, current .. span
    end
  end
end
if #scores > 0 then
  redis.call('ZADD', messages, unpack(scores))
end
if #records > 0 then
  redis.call('HSET', receipts, unpack(records))
  tidy_receipts(receipts, messages, hide_ms)
end
return reply
