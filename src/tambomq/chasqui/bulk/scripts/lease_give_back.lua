#!lua flags=allow-oom
-- lease_give_back: return the jobs of a dead query's claim before the lease expires.
--
-- KEYS  stream       stream  {chasqui:<queue>}:stream
--       ledger       hash    {chasqui:<queue>}:lease:<lease>
--       members      list    {chasqui:<queue>}:lease:<lease>:members
-- ARGV  first        index of the first job
--       count        how many, at most 1000
--       group        consumer group
--       consumer     consumer that owns them
--       returned     consumer that owns returned entries
--       idle_ms      idle time to set, so that others may claim at once
--       dead_holder  label of a holder that is known to be dead; '' if none
-- REPLY how many jobs were checked, and how many of them were returned; 'held' and the
--       holder's label
-- NEEDS require_unheld

local stream, ledger, members = KEYS[1], KEYS[2], KEYS[3]
local first, count = tonumber(ARGV[1]), tonumber(ARGV[2])
local group, consumer, returned, idle_ms, dead_holder = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]

local now, held, claim = require_unheld(ledger, dead_holder)
if held then
  return held
elseif not claim then
  return {0, 0}
end
-- If the query restarts in the meantime, it must check whether others have received the messages.
redis.call('HSET', ledger, 'until', now, 'hidden_until', now)

local lines, given = redis.call('LRANGE', members, first, first + count - 1), 0
for _, line in ipairs(lines) do
  local entry = cmsgpack.unpack(line)[1]
  local row = redis.pcall('XPENDING', stream, group, entry, entry, 1, consumer)
  if not row.err and #row == 1 then
    -- The job did not crash a worker, so this delivery does not count.
    redis.call('XCLAIM', stream, group, returned, 0, entry, 'IDLE', idle_ms,
      'RETRYCOUNT', math.max(0, row[1][4] - 1), 'JUSTID')
    given = given + 1
  end
end
return {#lines, given}
