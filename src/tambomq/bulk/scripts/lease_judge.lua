-- lease_judge: store the verdicts that lease_acknowledge will carry out on members of a claim.
--
-- KEYS  ledger           hash  the lease's ledger
--       verdicts         hash  verdicts on its members
-- ARGV  number           of the claim
--       member, verdict  …     the member's id, and the verdict for lease_acknowledge of
--                              the protocol; '' for done
-- REPLY 1 stored, 0 if the claim is not open

local ledger, verdicts = KEYS[1], KEYS[2]
local number = ARGV[1]

if redis.call('HGET', ledger, 'claim') ~= number then
  return 0
end
for i = 2, #ARGV, 2 do
  local member, verdict = ARGV[i], ARGV[i + 1]
  if verdict == '' then
    -- Before a crash the same batch may have had another verdict.
    redis.call('HDEL', verdicts, member)
  else
    redis.call('HSET', verdicts, member, verdict)
  end
end
return 1
