#!lua flags=allow-oom
-- lease_acknowledge: delete the messages of a committed claim.
--
-- KEYS  handed       string  HANDED_<consumer>_<peer>
--       ledger       hash    LEASE_<lease>:<key>
-- ARGV  owner        owner token of the caller
--       number       of the claim
--       claim_token  the claim's token; '' if unknown
-- REPLY 0, how many were deleted, 0, 0, 1 if the claim was lost; 'fenced' and the current
--       holder's label; 'wrong_claim' and the number of the open claim
-- NEEDS unacked_batch, claims

local handed, ledger = KEYS[1], KEYS[2]
local owner, number, claim_token = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local refused, claim = refused_ack(ledger, owner, number, claim_token)
if refused then
  return refused
end
local unacked, done = read_unacked(handed), 0
local ours = claim and unacked and unacked[1] == claim_token
if ours then
  done = #(unacked[2][2] or {})
  redis.call('DEL', handed)
end
redis.call('HSET', ledger, 'acked', number)
redis.call('HDEL', ledger, 'claim', 'mark')
return {0, done, 0, 0, claim and not ours and 1 or 0}
