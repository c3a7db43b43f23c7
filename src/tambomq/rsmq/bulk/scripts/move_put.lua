#!lua
-- move_put: send a batch of messages from another queue, all or none, exactly once.
--
-- KEYS  messages   zset  <ns>:<queue>
--       data       hash  <ns>:<queue>:Q
--       fence      hash  <ns>:<queue>:fence:<query>
--       origins    hash  <ns>:<queue>:fence:<query>:origins
-- ARGV  number     of the batch; each is higher than those before it
--       checksum   checksum of the positions so far, stored in the field `mark`
--       keep_s     TTL of the old ids, in seconds
--       longest    bytes of the longest body
--       delays     milliseconds, each followed by a comma
--       suffixes   22 random characters for each id
--       old, body  …     the message's old id ('' to remember none), and its body
-- REPLY 1 sent, 0 was sent before; {maxsize} when a body is too long; nil if the queue does not
--       exist
-- NEEDS journal_on, journal_on_queue

local messages, data, fence, origins = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local number, checksum, keep_s, longest = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local delays, suffixes = ARGV[5], ARGV[6]

local known = redis.call('HMGET', fence, 'last', 'count', 'sum')
if tonumber(number) <= (tonumber(known[1]) or 0) then
  return 0
end
local own = redis.call('HMGET', data, 'vt', 'maxsize')
if not own[1] then
  return nil
elseif (tonumber(own[2]) or -1) ~= -1 and tonumber(longest) > tonumber(own[2]) then
  return {tonumber(own[2])}
end
redis.call('HLEN', origins)

-- As in `send`, each id has its own microsecond, in ten digits of base 36.
local function base36(n)
  local digits = {}
  for i = 10, 1, -1 do
    local digit = n % 36
    digits[i] = digit + (digit < 10 and 48 or 87)
    n = (n - digit) / 36
  end
  return string.char(unpack(digits))
end

local time = redis.call('TIME')
local now, micros = time[1] * 1000 + math.floor(time[2] / 1000), time[1] * 1000000 + time[2]
local next_delay, sum = delays:gmatch('([^,]*),'), tonumber(known[3]) or 0
local scores, fields, names, count = {}, {}, {}, 0
for i = 7, #ARGV, 2 do
  local old, body = ARGV[i], ARGV[i + 1]
  local id = base36(micros + count) .. suffixes:sub(count * 22 + 1, count * 22 + 22)
  scores[#scores + 1], scores[#scores + 2] = now + tonumber(next_delay()), id
  fields[#fields + 1], fields[#fields + 2] = id, body
  if old ~= '' then
    names[#names + 1], names[#names + 2] = id, old
  end
  sum = (sum + tonumber(redis.sha1hex(body):sub(1, 12), 16)) % 2 ^ 48
  count = count + 1
end
if journal_is_full() then return JOURNAL_FULL end
-- The zset first: if it is of another type, the script fails before anything is written.
redis.call('ZADD', messages, unpack(scores))
redis.call('HSET', data, unpack(fields))
stored(scores, fields)
close_journal()
-- A damaged counter must not make the script fail half-way.
redis.pcall('HINCRBY', data, 'totalsent', count)
if #names > 0 then
  redis.call('HSET', origins, unpack(names))
  redis.call('EXPIRE', origins, keep_s)
end
redis.call('HSET', fence, 'last', number, 'mark', checksum,
  'count', (tonumber(known[2]) or 0) + count, 'sum', string.format('%.0f', sum))
-- The fence must not expire before the move ends: `moves.done` sets its TTL then.
redis.call('PERSIST', fence)
return 1
