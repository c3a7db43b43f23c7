#!lua flags=allow-oom
-- lease_release: release the claim of a lease whose query has been dead for too long.
--
-- Its messages are requeued when its peer is disconnected.
--
-- KEYS  ledger  hash  LEASE_<lease>:<key>
-- ARGV  none
-- REPLY the number of the released claim; 0 if there was none

local ledger = KEYS[1]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease = redis.call('HMGET', ledger, 'until', 'hidden_until', 'claim')
if not lease[3] or now < (tonumber(lease[1]) or 0) or now < (tonumber(lease[2]) or 0) then
  return 0
end
redis.call('HSET', ledger, 'released', lease[3])
redis.call('HDEL', ledger, 'owner', 'label', 'until', 'claim', 'mark')
return tonumber(lease[3])
