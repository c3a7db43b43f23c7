-- leave: remove a consumer from its group, if it owns no entries.
--
-- KEYS  stream    stream  {chasqui:<queue>}:stream
--       workers   set     {chasqui:<queue>}:tambo:workers
-- ARGV  group     consumer group
--       consumer  the consumer
-- REPLY 1 removed, 0 it owns entries, or the group does not exist

local stream, workers = KEYS[1], KEYS[2]
local group, consumer = ARGV[1], ARGV[2]

local pending = redis.pcall('XPENDING', stream, group, '-', '+', 1, consumer)
if pending.err or #pending > 0 then
  return 0
end
redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
redis.call('SREM', workers, consumer)
return 1
