#!lua flags=allow-oom
-- lease_release: release the claim of a lease whose query has been dead for too long.
--
-- Its messages have become available to others already, by each protocol's own timeout.
--
-- KEYS  ledger    hash  the lease's ledger
--       members   list  members of its claim
--       verdicts  hash  verdicts on them
-- ARGV  none
-- REPLY how many members the claim had; 0 if nothing was released

local ledger, members, verdicts = KEYS[1], KEYS[2], KEYS[3]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease = redis.call('HMGET', ledger, 'until', 'hidden_until', 'claim')
if not lease[3] or now < (tonumber(lease[1]) or 0) or now < (tonumber(lease[2]) or 0) then
  return 0
end
local held = redis.call('LLEN', members)
redis.call('UNLINK', members, verdicts)
redis.call('HSET', ledger, 'released', lease[3])
redis.call('HDEL', ledger, 'owner', 'label', 'until', 'claim', 'mark')
return held
