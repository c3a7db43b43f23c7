#!lua
-- redrive_open: begin a redrive, or tell of one that was begun before.
--
-- KEYS  redrives      set   the redrives of a queue
--       record        hash  what is known of this one
-- ARGV  id            its name
--       keep_s        for how long it is remembered
--       field, value  …     what it is told
-- REPLY all fields and values of the record

local redrives, record = KEYS[1], KEYS[2]
local id, keep_s = ARGV[1], ARGV[2]

if redis.call('EXISTS', record) == 0 then
  redis.call('SADD', redrives, id)
  for i = 3, #ARGV, 2 do
    redis.call('HSET', record, ARGV[i], ARGV[i + 1])
  end
  redis.call('EXPIRE', record, keep_s)
end
return redis.call('HGETALL', record)
