#!lua flags=allow-oom
-- lease_prune: leave out of a claim that nobody has seen yet what is another's by now, or gone.
--
-- KEYS  stream    stream  {chasqui:<queue>}:stream
--       ledger    hash    {chasqui:<queue>}:lease:<lease>
--       members   list    {chasqui:<queue>}:lease:<lease>:members
-- ARGV  owner     who has the lease
--       count     look at so many, at most 1000; those that are kept go to the end
--       group     whose jobs
--       consumer  in whose name
-- REPLY how many are left; 'fenced' and who has the lease

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
local is_held = held(stream, group, consumer, entries)
for i, line in ipairs(lines) do
  if is_held(entries[i]) then
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
