-- lease_forget: delete a lease.
--
-- KEYS  leases       set   leases of a queue
--       ledger       hash  its ledger
--       more         …     other keys of the lease
-- ARGV  lease        its name
--       dead_holder  label of a holder that is known to be dead; '' if none
-- REPLY 'gone' and 1, or 0 if there was none; 'held' and the holder's label; 'open' and the number
--       of the open claim
-- NEEDS require_unheld

local leases, ledger = KEYS[1], KEYS[2]
local lease, dead_holder = ARGV[1], ARGV[2]

local _, held, claim = require_unheld(ledger, dead_holder)
if held then
  return held
elseif claim then
  return {'open', tonumber(claim)}
end
local known = redis.call('SREM', leases, lease)
return {'gone', math.max(known, math.min(1, redis.call('DEL', ledger, unpack(KEYS, 3))))}
