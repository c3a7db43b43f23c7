#!lua flags=allow-oom
-- redrive_settle: set the state of a redrive, unless it is undone or deleted.
--
-- KEYS  record  hash  record of the redrive
-- ARGV  state   new state
-- REPLY 1 set, 0 not set

local record = KEYS[1]
local state = ARGV[1]

local now = redis.call('HGET', record, 'state')
if not now or now == 'undone' then
  return 0
end
redis.call('HSET', record, 'state', state)
return 1
