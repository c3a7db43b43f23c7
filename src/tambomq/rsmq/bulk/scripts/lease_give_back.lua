#!lua flags=allow-oom
-- lease_give_back: make the messages of a dead query's claim visible before the lease expires.
--
-- KEYS  messages     zset  <ns>:<queue>
--       data         hash  <ns>:<queue>:Q
--       ledger       hash  <ns>:<queue>:lease:<lease>
--       members      list  <ns>:<queue>:lease:<lease>:members
--       receipts     hash  <ns>:<queue>:receipts
-- ARGV  first        index of the first message
--       count        how many, at most 1000
--       dead_holder  label of a holder that is known to be dead; '' if none
-- REPLY how many messages were checked, and how many of them are visible now; 'held' and the
--       holder's label
-- NEEDS claimed, require_unheld

local messages, data, ledger, members, receipts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local first, count, dead_holder = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

local now, held, claim = require_unheld(ledger, dead_holder)
if held then
  return held
elseif not claim then
  return {0, 0}
end
-- If the query restarts in the meantime, it must check whether others have received the messages.
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
