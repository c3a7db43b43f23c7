#!lua
-- sink_send: send the messages of a chunk, all of them and once.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       fence     hash  <ns>:<queue>:fence:<query>
-- ARGV  batch     the chunk's; nothing is written for one that is below the fence's floor
--       token     names the chunk
--       digest    of what is in it
--       keep_s    for how long the fence is kept
--       longest   bytes of the longest body
--       delays    seconds, each followed by a comma, nothing for the queue's own; '' if all are
--       suffixes  22 random characters for each id
--       body      …     the payloads
-- REPLY 1 sent, 0 was sent before, -1 another chunk was under this token, -2 its batch is over;
--       {maxsize} when a body is too long; nil when there is no such queue; a string when its
--       settings are no numbers

local messages, data, fence = KEYS[1], KEYS[2], KEYS[3]
local batch, token, digest, keep_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local longest, delays, suffixes = ARGV[5], ARGV[6], ARGV[7]

local known = redis.call('HMGET', fence, token, 'floor')
if known[1] then
  return known[1] == digest and 0 or -1
elseif known[2] and tonumber(batch) < tonumber(known[2]) then
  return -2
end
local own = redis.call('HMGET', data, 'vt', 'delay', 'maxsize', 'totalsent')
if not own[1] then
  return nil
end
local wait, maxsize = tonumber(own[2]), tonumber(own[3])
if not (wait and maxsize and wait >= 0 and wait <= 9999999) then
  return 'delay is "' .. tostring(own[2]) .. '", maxsize is "' .. tostring(own[3]) .. '"'
end
if maxsize ~= -1 and tonumber(longest) > maxsize then
  return {maxsize}
end

-- As in `send`, each has a microsecond of its own, in ten digits of base 36. Messages of one chunk
-- differ in the last three: the seven before these are written down once, which halves the time.
local digits = {}
for n = 0, 35 do
  digits[n] = string.char(n + (n < 10 and 48 or 87))
end
local function head_of(n)
  local text = ''
  for _ = 1, 7 do
    text = digits[n % 36] .. text
    n = math.floor(n / 36)
  end
  return text
end

local time = redis.call('TIME')
local now, micros = time[1] * 1000 + math.floor(time[2] / 1000), time[1] * 1000000 + time[2]
local next_delay = delays ~= '' and delays:gmatch('([^,]*),')
local scores, fields, high, head = {}, {}, -1, ''
for i = 8, #ARGV do
  local n = i - 8
  local low = (micros + n) % 46656
  if micros + n - low ~= high then
    high = micros + n - low
    head = head_of(high / 46656)
  end
  local last = low % 36
  local id = head .. digits[math.floor(low / 1296)] .. digits[(low - last) / 36 % 36] .. digits[last]
    .. suffixes:sub(n * 22 + 1, n * 22 + 22)
  local seconds = next_delay and tonumber(next_delay()) or wait
  scores[2 * n + 1], scores[2 * n + 2] = now + math.floor(seconds * 1000 + 0.5), id
  fields[2 * n + 1], fields[2 * n + 2] = id, ARGV[i]
end
-- A counter that somebody has damaged is no reason to fail.
local sent = tonumber(own[4] or 0)
if sent and sent % 1 == 0 and math.abs(sent) < 2 ^ 53 then
  fields[#fields + 1], fields[#fields + 2] = 'totalsent', sent + #ARGV - 7
end

-- First the zset: if its key is of another type, nothing has been written yet.
redis.call('ZADD', messages, unpack(scores))
redis.call('HSET', data, unpack(fields))
redis.call('HSET', fence, token, digest)
redis.call('EXPIRE', fence, keep_s)
return 1
