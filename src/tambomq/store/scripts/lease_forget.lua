-- lease_forget: remove a lease for good.
--
-- KEYS  leases  set   the leases on a queue
--       ledger  hash  what is known of this one
--       more    …     what else belongs to it
-- ARGV  lease   its name
--       gone    who had it and is known to be dead; '' for nobody
-- REPLY 'gone' and 1, or 0 if there was none; 'held' and who has it; 'open' and the claim that is

local leases, ledger = KEYS[1], KEYS[2]
local lease, gone = ARGV[1], ARGV[2]

local _, held, claim = loose(ledger, gone)
if held then
  return held
elseif claim then
  return {'open', tonumber(claim)}
end
local known = redis.call('SREM', leases, lease)
return {'gone', math.max(known, math.min(1, redis.call('DEL', ledger, unpack(KEYS, 3))))}
