-- commit: store a reader's position, and trim some of what all readers have committed.
--
-- KEYS  journal  stream  {tambo:<protocol>:<queue>}:journal
--       state    hash    {tambo:<protocol>:<queue>}:journal:state
-- ARGV  reader   its name
--       id       the last entry to commit; an id before its last commit changes nothing
-- REPLY how many entries were trimmed; the same commit again trims more
-- NEEDS readers

local journal, state = KEYS[1], KEYS[2]
local reader, id = ARGV[1], ARGV[2]

-- Read the stream first: a key of another type then fails before anything is written.
local last = redis.call('XREVRANGE', journal, id, '-', 'COUNT', 1)[1]
local noted = redis.call('HGET', state, 'committed:' .. reader)
if not noted or is_later(id, noted) then
  redis.call('HSET', state, 'committed:' .. reader, id,
    'read:' .. reader, last and field(last, 'o') or '0')
end
return trim(journal, state)
