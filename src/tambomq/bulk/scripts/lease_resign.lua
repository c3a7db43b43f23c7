-- lease_resign: let another query have a lease at once; its claim stays.
--
-- KEYS  ledger  hash  what is known of the lease
-- ARGV  owner   who gives it up
-- REPLY 1 given up, 0 it was another's

local ledger = KEYS[1]
local owner = ARGV[1]

if redis.call('HGET', ledger, 'owner') ~= owner then
  return 0
end
redis.call('HDEL', ledger, 'owner', 'label', 'until')
return 1
