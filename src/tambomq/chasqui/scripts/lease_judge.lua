-- lease_judge: say what is to become of jobs when their claim is acknowledged.
--
-- KEYS  ledger          hash  {chasqui:<queue>}:lease:<lease>
--       verdicts        hash  {chasqui:<queue>}:lease:<lease>:verdicts
-- ARGV  number          of the claim
--       entry, verdict  …  a job's, and what lease_acknowledge carries out; '' for done
-- REPLY 1 written down, 0 if the claim is not open

local ledger, verdicts = KEYS[1], KEYS[2]
local number = ARGV[1]

if redis.call('HGET', ledger, 'claim') ~= number then
  return 0
end
for i = 2, #ARGV, 2 do
  local entry, verdict = ARGV[i], ARGV[i + 1]
  if verdict == '' then
    -- The same batch may have been judged otherwise before a crash.
    redis.call('HDEL', verdicts, entry)
  else
    redis.call('HSET', verdicts, entry, verdict)
  end
end
return 1
