-- lease_judge: say what is to become of messages when their claim is acknowledged.
--
-- KEYS  ledger       hash  <ns>:<queue>:lease:<lease>
--       verdicts     hash  <ns>:<queue>:lease:<lease>:verdicts
-- ARGV  number       of the claim
--       id, verdict  …     a message, and 'r' with ms to wait, 'd' with a reason, or '' for done
-- REPLY 1 written down, 0 if the claim is not open

local ledger, verdicts = KEYS[1], KEYS[2]
local number = ARGV[1]

if redis.call('HGET', ledger, 'claim') ~= number then
  return 0
end
for i = 2, #ARGV, 2 do
  local id, verdict = ARGV[i], ARGV[i + 1]
  if verdict == '' then
    -- The same batch may have been judged otherwise before a crash.
    redis.call('HDEL', verdicts, id)
  else
    redis.call('HSET', verdicts, id, verdict)
  end
end
return 1
