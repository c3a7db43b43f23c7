-- lease_judge: say what is to become of members of a claim when it is acknowledged.
--
-- KEYS  ledger           hash  what is known of the lease
--       verdicts         hash  what was said of its members
-- ARGV  number           of the claim
--       member, verdict  …     what it is known by, and what lease_acknowledge of the protocol
--                              carries out; '' for done
-- REPLY 1 written down, 0 if the claim is not open

local ledger, verdicts = KEYS[1], KEYS[2]
local number = ARGV[1]

if redis.call('HGET', ledger, 'claim') ~= number then
  return 0
end
for i = 2, #ARGV, 2 do
  local member, verdict = ARGV[i], ARGV[i + 1]
  if verdict == '' then
    -- The same batch may have been judged otherwise before a crash.
    redis.call('HDEL', verdicts, member)
  else
    redis.call('HSET', verdicts, member, verdict)
  end
end
return 1
