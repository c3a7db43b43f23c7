-- lease_write_verdicts: store the verdicts that lease_acknowledge will carry out on members of a claim.
--
-- KEYS  ledger           hash  the lease's ledger
--       verdicts         hash  verdicts on its members
-- ARGV  owner            owner token under which the batch was read
--       number           of the claim
--       claim_token      the claim's token
--       member, verdict  …     the member's id, and the verdict for lease_acknowledge of
--                              the protocol; '' for done
-- REPLY 1 stored, 0 if the claim is not open; 'fenced' and the current holder's label

local ledger, verdicts = KEYS[1], KEYS[2]
local owner, number, claim_token = ARGV[1], ARGV[2], ARGV[3]

-- The owner, since a new one has the same claim open with the same token; the token, since the number
-- of a claim that was released is used again.
local lease = redis.call('HMGET', ledger, 'owner', 'label', 'claim', 'mark')
if lease[1] ~= owner then
  return {'fenced', lease[2] or ''}
elseif lease[3] ~= number or lease[4] ~= claim_token then
  return {0}
end
for i = 4, #ARGV, 2 do
  local member, verdict = ARGV[i], ARGV[i + 1]
  if verdict == '' then
    -- An earlier attempt of the task may have stored another verdict.
    redis.call('HDEL', verdicts, member)
  else
    redis.call('HSET', verdicts, member, verdict)
  end
end
return {1}
