#!lua flags=allow-oom
-- lease_prune: drop members that are no longer owned from a claim that was not processed yet.
--
-- KEYS  stream    stream  {chasqui:<queue>}:stream
--       ledger    hash    {chasqui:<queue>}:lease:<lease>
--       members   list    {chasqui:<queue>}:lease:<lease>:members
-- ARGV  owner     owner token of the caller
--       count     how many to check, at most 1000; those that are kept go to the end
--       group     consumer group
--       consumer  consumer that owns them
-- REPLY how many are left; 'fenced' and the current holder's label
-- NEEDS owner_check

local stream, ledger, members = KEYS[1], KEYS[2], KEYS[3]
local owner, count, group, consumer = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local lease = redis.call('HMGET', ledger, 'owner', 'label')
if lease[1] ~= owner then
  return {'fenced', lease[2] or ''}
end
local lines = redis.call('LPOP', members, count) or {}
local entries, kept = {}, {}
for i, line in ipairs(lines) do
  entries[i] = cmsgpack.unpack(line)[1]
end
local is_owned = owner_check(stream, group, consumer, entries)
for i, line in ipairs(lines) do
  if is_owned(entries[i]) then
    kept[#kept + 1] = line
  end
end
if #kept > 0 then
  redis.call('RPUSH', members, unpack(kept))
end
local left = redis.call('LLEN', members)
if left == 0 then
  redis.call('HDEL', ledger, 'claim', 'mark')
end
return {left}
