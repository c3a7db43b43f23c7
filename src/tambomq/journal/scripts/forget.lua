-- forget: delete a reader, so that its position no longer prevents trimming.
--
-- KEYS  journal  stream  {tambo:<protocol>:<queue>}:journal
--       state    hash    {tambo:<protocol>:<queue>}:journal:state
-- ARGV  reader   its name
-- REPLY 1 deleted, 0 was not known
-- NEEDS readers

local journal, state = KEYS[1], KEYS[2]
local reader = ARGV[1]

redis.call('XLEN', journal)
local known = redis.call('HDEL', state, 'committed:' .. reader, 'read:' .. reader) > 0
trim(journal, state)
return known and 1 or 0
