-- commit: note how far a reader has come, and forget what no reader needs any more.
--
-- KEYS  journal  stream  {tambo:<protocol>:<queue>}:journal
--       state    hash    {tambo:<protocol>:<queue>}:journal:state
-- ARGV  reader   its name
--       id       the last entry it needs no more; one before its last changes nothing
-- REPLY how many entries were forgotten

local journal, state = KEYS[1], KEYS[2]
local reader, id = ARGV[1], ARGV[2]

-- One of another type is found before anything is written.
local last = redis.call('XREVRANGE', journal, id, '-', 'COUNT', 1)[1]
local noted = redis.call('HGET', state, 'committed:' .. reader)
if not noted or is_later(id, noted) then
  redis.call('HSET', state, 'committed:' .. reader, id,
    'read:' .. reader, last and field(last, 'o') or '0')
end
return trim(journal, state)
