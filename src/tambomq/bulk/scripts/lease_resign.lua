-- lease_resign: release a lease at once; its claim stays open.
--
-- KEYS  ledger  hash  the lease's ledger
-- ARGV  owner   owner token of the caller
-- REPLY 1 released, 0 another query holds it

local ledger = KEYS[1]
local owner = ARGV[1]

if redis.call('HGET', ledger, 'owner') ~= owner then
  return 0
end
redis.call('HDEL', ledger, 'owner', 'label', 'until')
return 1
