-- lease_forget: remove a lease for good.
--
-- KEYS  leases    set   <ns>:<queue>:leases
--       ledger    hash  <ns>:<queue>:lease:<lease>
--       members   list  <ns>:<queue>:lease:<lease>:members
--       verdicts  hash  <ns>:<queue>:lease:<lease>:verdicts
-- ARGV  lease     its name
--       gone      who had it and is known to be dead; '' for nobody
-- REPLY 'gone' and 1, or 0 if there was none; 'held' and who has it; 'open' and the claim that is

local leases, ledger, members, verdicts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lease, gone = ARGV[1], ARGV[2]

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stored = redis.call('HMGET', ledger, 'owner', 'until', 'label', 'claim')
if stored[1] and now < (tonumber(stored[2]) or 0) and (gone == '' or stored[3] ~= gone) then
  return {'held', stored[3] or ''}
elseif stored[4] then
  return {'open', tonumber(stored[4])}
end
local known = redis.call('SREM', leases, lease)
return {'gone', math.max(known, math.min(1, redis.call('DEL', ledger, members, verdicts)))}
