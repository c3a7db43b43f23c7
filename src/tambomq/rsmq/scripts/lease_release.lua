#!lua flags=allow-oom
-- lease_release: give up the claim of a lease whose query has been dead for too long.
--
-- Its messages have become visible by themselves.
--
-- KEYS  ledger    hash  <ns>:<queue>:lease:<lease>
--       members   list  <ns>:<queue>:lease:<lease>:members
--       verdicts  hash  <ns>:<queue>:lease:<lease>:verdicts
-- ARGV  none
-- REPLY how many messages the claim had; 0 if there was nothing to give up

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
