#!lua flags=allow-oom
-- join_full: create the consumer group although memory is full: workers must start to free it.
--
-- KEYS  stream    stream  {chasqui:<queue>}:stream
--       signs     set     {chasqui:<queue>}:tambo:consumers
-- ARGV  group     consumer group
--       consumer  a consumer whose name a user chose, or ''
-- REPLY 1

local stream, signs = KEYS[1], KEYS[2]
local group, consumer = ARGV[1], ARGV[2]

if consumer ~= '' then
  redis.call('SADD', signs, consumer)
end
local made = redis.pcall('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
if type(made) == 'table' and made.err and not made.err:find('BUSYGROUP', 1, true) then
  return made
end
return 1
