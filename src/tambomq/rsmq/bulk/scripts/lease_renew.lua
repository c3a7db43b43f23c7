#!lua flags=allow-oom
-- lease_renew: renew a lease, and the visibility timeout of some messages of its open claim.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       ledger    hash  <ns>:<queue>:lease:<lease>
--       members   list  <ns>:<queue>:lease:<lease>:members
--       receipts  hash  <ns>:<queue>:receipts
-- ARGV  owner     owner token of the caller
--       lease_ms  lease time, in ms
--       hide_ms   for how long the messages are hidden
--       first     index of the first message
--       count     how many, at most 1000; 0 keeps the lease alone
-- REPLY how many messages were checked, and how many of them were deleted or received
--       again since; 'fenced' and the current holder's label
-- NEEDS claimed, member, tidy

local messages, data, ledger, members, receipts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, lease_ms, hide_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local first, count = tonumber(ARGV[4]), tonumber(ARGV[5])

local lease = redis.call('HMGET', ledger, 'owner', 'label')
if lease[1] ~= owner then
  return {'fenced', lease[2] or ''}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', ledger, 'until', now + lease_ms)

local lines = count > 0 and redis.call('LRANGE', members, first, first + count - 1) or {}
if #lines == 0 then
  return {0, 0}
end
local record_end = ' ' .. time[1] .. '.' .. time[2] .. ' ' .. hide_ms / 1000
local ids, held, token = claimed(ledger, data, receipts, lines)
local scores, records, lost = {}, {}, 0
for i, id in ipairs(ids) do
  if held[i] then
    scores[#scores + 1], scores[#scores + 2] = now + hide_ms, id
    if token then
      local receipt = member(lines[i]) .. '-' .. token
      records[#records + 1], records[#records + 2] = id, receipt .. record_end
    end
  else
    lost = lost + 1
  end
end
if #scores > 0 then
  redis.call('ZADD', messages, 'XX', unpack(scores))
end
if #records > 0 then
  redis.call('HSET', receipts, unpack(records))
  tidy_receipts(receipts, messages, hide_ms)
end
if first == 0 then
  redis.call('HSET', ledger, 'hidden_until', now + hide_ms)
end
return {#lines, lost}
