-- lease_renew: renew a lease, and the ownership of some jobs of its open claim.
--
-- KEYS  stream    stream  {chasqui:<queue>}:stream
--       ledger    hash    {chasqui:<queue>}:lease:<lease>
--       members   list    {chasqui:<queue>}:lease:<lease>:members
-- ARGV  owner     owner token of the caller
--       lease_ms  lease time, in ms
--       hide_ms   for how long the claim is not given up
--       first     index of the first job
--       count     how many, at most 1000; 0 keeps the lease alone
--       group     consumer group
--       consumer  consumer that owns them
-- REPLY how many jobs were checked, and how many of them are no longer owned;
--       'fenced' and the current holder's label
-- NEEDS owner_check

local stream, ledger, members = KEYS[1], KEYS[2], KEYS[3]
local owner, lease_ms, hide_ms = ARGV[1], ARGV[2], ARGV[3]
local first, count, group, consumer = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], ARGV[7]

local lease = redis.call('HMGET', ledger, 'owner', 'label')
if lease[1] ~= owner then
  return {'fenced', lease[2] or ''}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', ledger, 'until', now + lease_ms)

local entries = {}
for i, line in ipairs(count > 0 and redis.call('LRANGE', members, first, first + count - 1) or {}) do
  entries[i] = cmsgpack.unpack(line)[1]
end
if #entries == 0 then
  return {0, 0}
end
local is_owned, mine = owner_check(stream, group, consumer, entries), {}
for _, entry in ipairs(entries) do
  if is_owned(entry) then
    mine[#mine + 1] = entry
  end
end
local lost = #entries - #mine
if #mine > 0 then
  mine[#mine + 1] = 'JUSTID'
  redis.call('XCLAIM', stream, group, consumer, 0, unpack(mine))
end
if first == 0 then
  redis.call('HSET', ledger, 'hidden_until', now + hide_ms)
end
return {#entries, lost}
