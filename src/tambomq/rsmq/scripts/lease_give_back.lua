#!lua flags=allow-oom
-- lease_give_back: let everybody have messages of a claim whose query is gone, before their time.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       ledger    hash  <ns>:<queue>:lease:<lease>
--       members   list  <ns>:<queue>:lease:<lease>:members
--       receipts  hash  <ns>:<queue>:receipts
-- ARGV  first     the place of the first message
--       count     how many, at most 1000
--       gone      who had it and is known to be dead; '' for nobody
-- REPLY how many messages were looked at, and how many of them are visible now; 'held' and who has
--       the lease

local messages, data, ledger, members, receipts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local first, count, gone = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

local now, held, claim = loose(ledger, gone)
if held then
  return held
elseif not claim then
  return {0, 0}
end
-- Who comes back in between has to look whether others have had them.
redis.call('HSET', ledger, 'until', now, 'hidden_until', now)

local lines = redis.call('LRANGE', members, first, first + count - 1)
local ids, held_still = claimed(ledger, data, receipts, lines)
local scores = {}
for i, id in ipairs(ids) do
  if held_still[i] then
    scores[#scores + 1] = now
    scores[#scores + 1] = id
  end
end
if #scores > 0 then
  redis.call('ZADD', messages, 'XX', unpack(scores))
end
return {#lines, #scores / 2}
