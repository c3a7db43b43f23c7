#!lua flags=no-writes
-- permitted: which commands the user of this connection may run. It runs none of them.
--
-- KEYS  none
-- ARGV  command …  the words of a command, as a JSON array
-- REPLY for each 1, or 0 if an ACL forbids it or the server does not know it

local reply = {}
for i = 1, #ARGV do
  local known, allowed = pcall(redis.acl_check_cmd, unpack(cjson.decode(ARGV[i])))
  reply[i] = (known and allowed) and 1 or 0
end
return reply
