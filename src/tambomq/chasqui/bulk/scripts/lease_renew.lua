-- lease_renew: keep a lease, and some jobs of its open claim out of others' hands.
--
-- KEYS  stream    stream  {chasqui:<queue>}:stream
--       ledger    hash    {chasqui:<queue>}:lease:<lease>
--       members   list    {chasqui:<queue>}:lease:<lease>:members
-- ARGV  owner     who has the lease
--       lease_ms  for how long from now
--       hide_ms   for how long the claim is not given up
--       first     the place of the first job
--       count     how many, at most 1000; 0 keeps the lease alone
--       group     whose jobs
--       consumer  in whose name
-- REPLY how many jobs were looked at, and how many of them are another's by now, or gone;
--       'fenced' and who has the lease

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
local is_held, mine = held(stream, group, consumer, entries), {}
for _, entry in ipairs(entries) do
  if is_held(entry) then
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
