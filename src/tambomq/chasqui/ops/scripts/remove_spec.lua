-- remove_spec: delete a repeatable spec.
--
-- KEYS  repeat_        zset  {chasqui:<queue>}:repeat
--       spec           hash  {chasqui:<queue>}:repeat:spec:<key>
--       window         zset  {chasqui:<queue>}:idmp:requests
--       unless_queued  hash  {chasqui:<queue>}:tambo:unless_queued
--       previous       hash  {chasqui:<queue>}:tambo:previous
-- ARGV  key            key of the spec
--       request        id of this request: a repeated request has no effect
-- REPLY 1 removed, 0 was not there
-- NEEDS dedup_window, previous_job

local repeat_, spec, window = KEYS[1], KEYS[2], KEYS[3]
local unless_queued, previous = KEYS[4], KEYS[5]
local key, request = ARGV[1], ARGV[2]

if is_in_window(window, request) then
  return 1
end
redis.call('DEL', spec)
local known = redis.call('HGET', unless_queued, key)
if known then
  forget_previous(previous, known)
  redis.call('HDEL', unless_queued, key)
end
local count = redis.call('ZREM', repeat_, key)
if count == 1 then
  remember(window, request)
end
return count
