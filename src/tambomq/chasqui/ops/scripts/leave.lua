-- leave: take a consumer out of its group, if nothing is in its hands.
--
-- KEYS  stream    stream  {chasqui:<queue>}:stream
--       workers   set     {chasqui:<queue>}:tambo:workers
-- ARGV  group     whose
--       consumer  who
-- REPLY 1 has left, 0 has entries, or there is no group

local stream, workers = KEYS[1], KEYS[2]
local group, consumer = ARGV[1], ARGV[2]

local pending = redis.pcall('XPENDING', stream, group, '-', '+', 1, consumer)
if pending.err or #pending > 0 then
  return 0
end
redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
redis.call('SREM', workers, consumer)
return 1
