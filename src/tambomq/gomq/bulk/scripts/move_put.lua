#!lua
-- move_put: publish a batch of messages from another queue, all or none, exactly once.
--
-- KEYS  queue             list  QUEUE_<key>
--       fence             hash  FENCE_<key>_<query>
--       origins           hash  ORIGINS_<key>_<query>
-- ARGV  number            of the batch; each is higher than those before it
--       checksum          checksum of the positions so far, stored in the field `mark`
--       keep_s            TTL of the old ids, in seconds
--       id, old, message  …  the message's id; its old id ('' to remember none); the
--                list element
-- REPLY 1 appended, 0 was appended before
-- NEEDS journal_on_publish

local queue, fence, origins = KEYS[1], KEYS[2], KEYS[3]
local number, checksum, keep_s = ARGV[1], ARGV[2], ARGV[3]

local known = redis.call('HMGET', fence, 'last', 'count', 'sum')
if tonumber(number) <= (tonumber(known[1]) or 0) then
  return 0
end
redis.call('HLEN', origins)
local messages, names, sum = {}, {}, tonumber(known[3]) or 0
for i = 4, #ARGV, 3 do
  local id, old, message = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  messages[#messages + 1] = message
  if old ~= '' then
    names[#names + 1], names[#names + 2] = id, old
  end
  sum = (sum + tonumber(redis.sha1hex(message):sub(1, 12), 16)) % 2 ^ 48
end
if journal_is_full() then return JOURNAL_FULL end
redis.call('RPUSH', queue, unpack(messages))
stored(queue)
close_journal()
if #names > 0 then
  redis.call('HSET', origins, unpack(names))
  redis.call('EXPIRE', origins, keep_s)
end
redis.call('HSET', fence, 'last', number, 'mark', checksum,
  'count', (tonumber(known[2]) or 0) + #messages, 'sum', string.format('%.0f', sum))
-- The fence must not expire before the move ends: `moves.done` sets its TTL then.
redis.call('PERSIST', fence)
return 1
