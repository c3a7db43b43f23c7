#!lua flags=allow-oom
-- lease_give_back: let everybody have jobs of a claim whose query is gone, before their time.
--
-- KEYS  stream    stream  {chasqui:<queue>}:stream
--       ledger    hash    {chasqui:<queue>}:lease:<lease>
--       members   list    {chasqui:<queue>}:lease:<lease>:members
-- ARGV  first     the place of the first job
--       count     how many, at most 1000
--       group     whose jobs
--       consumer  in whose name they are pending
--       returned  in whose name they lie from now on
--       idle_ms   after so long a silence anybody may claim
--       gone      who had it and is known to be dead; '' for nobody
-- REPLY how many jobs were looked at, and how many of them were given back; 'held' and who has the
--       lease

local stream, ledger, members = KEYS[1], KEYS[2], KEYS[3]
local first, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local group, consumer, returned, idle_ms, gone = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]

local now, held, claim = loose(ledger, gone)
if held then
  return held
elseif not claim then
  return {0, 0}
end
-- Who comes back in between has to look whether others have had them.
redis.call('HSET', ledger, 'until', now, 'hidden_until', now)

local lines, given = redis.call('LRANGE', members, first, first + count - 1), 0
for _, line in ipairs(lines) do
  local entry = cmsgpack.unpack(line)[1]
  local row = redis.pcall('XPENDING', stream, group, entry, entry, 1, consumer)
  if not row.err and #row == 1 then
    -- This delivery ended in nobody's death: it does not count.
    redis.call('XCLAIM', stream, group, returned, 0, entry, 'IDLE', idle_ms,
      'RETRYCOUNT', math.max(0, row[1][4] - 1), 'JUSTID')
    given = given + 1
  end
end
return {#lines, given}
