#!lua flags=allow-oom
-- put_user: replace a user, unless another has changed it meanwhile.
--
-- KEYS  users   hash  {tambo:access}:users
-- ARGV  name    the user
--       before  how it is stored, or '' if it is not
--       after   how to store it, or '' to remove it
-- REPLY 1 replaced, 0 changed meanwhile

local users = KEYS[1]
local name, before, after = ARGV[1], ARGV[2], ARGV[3]

if (redis.call('HGET', users, name) or '') ~= before then
  return 0
end
if after == '' then
  redis.call('HDEL', users, name)
else
  redis.call('HSET', users, name, after)
end
return 1
