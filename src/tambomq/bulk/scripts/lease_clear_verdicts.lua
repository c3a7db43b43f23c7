-- lease_clear_verdicts: forget the verdicts that an earlier owner wrote about the open claim.
--
-- KEYS  ledger    hash  the lease's ledger
--       verdicts  hash  verdicts on the members of its claim
-- ARGV  owner     owner token of the caller
-- REPLY how many keys were deleted, 0 or 1; 'fenced' and the current holder's label

local ledger, verdicts = KEYS[1], KEYS[2]
local owner = ARGV[1]

local lease = redis.call('HMGET', ledger, 'owner', 'label')
if lease[1] ~= owner then
  return {'fenced', lease[2] or ''}
end
return {redis.call('UNLINK', verdicts)}
