#!lua
-- redrive_open: start a redrive, or return the record of one that was started before.
--
-- KEYS  redrives      set   the redrives of a queue
--       record        hash  its ledger
-- ARGV  id            its name
--       keep_s        TTL of the record, in seconds
--       field, value  …     fields of a new record
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
