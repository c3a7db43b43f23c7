#!lua flags=allow-oom
-- redrive_settle: say what has become of a redrive, unless it is undone or forgotten.
--
-- KEYS  record  hash  what is known of it
-- ARGV  state   what has become of it
-- REPLY 1 said, 0 not

local record = KEYS[1]
local state = ARGV[1]

local now = redis.call('HGET', record, 'state')
if not now or now == 'undone' then
  return 0
end
redis.call('HSET', record, 'state', state)
return 1
