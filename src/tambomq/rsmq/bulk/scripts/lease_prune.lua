#!lua flags=allow-oom
-- lease_prune: drop members that are no longer owned from a claim that was not processed yet.
--
-- KEYS  data      hash  <ns>:<queue>:Q
--       ledger    hash  <ns>:<queue>:lease:<lease>
--       members   list  <ns>:<queue>:lease:<lease>:members
--       receipts  hash  <ns>:<queue>:receipts
-- ARGV  owner     owner token of the caller
--       count     how many to check, at most 1000; those that are kept go to the end
-- REPLY how many are left; 'fenced' and the current holder's label
-- NEEDS claimed

local data, ledger, members, receipts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, count = ARGV[1], ARGV[2]

local lease = redis.call('HMGET', ledger, 'owner', 'label')
if lease[1] ~= owner then
  return {'fenced', lease[2] or ''}
end
local lines = redis.call('LPOP', members, count) or {}
local _, held = claimed(ledger, data, receipts, lines)
local kept = {}
for i, line in ipairs(lines) do
  if held[i] then
    kept[#kept + 1] = line
  end
end
if #kept > 0 then
  redis.call('RPUSH', members, unpack(kept))
end
local left = redis.call('LLEN', members)
if left == 0 then
  redis.call('HDEL', ledger, 'claim', 'mark', 'token')
end
return {left}
