#!lua
-- sink_send: send the messages of a chunk, all or none, exactly once.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       fence     hash  <ns>:<queue>:fence:<query>
--       bounds    hash  <ns>:<queue>:bounds
-- ARGV  batch     number of the chunk's batch; below the fence's floor nothing is written
--       token     id of the chunk
--       digest    digest of the chunk's content
--       keep_s    TTL of the fence, in seconds
--       longest   bytes of the longest body
--       delays    seconds, each followed by a comma, nothing for the queue's own; '' if all are
--       suffixes  22 random characters for each id
--       body      …     the payloads
-- REPLY 1 sent, 0 was sent before, -1 the token was used for another chunk, -2 its batch is below the floor;
--       {maxsize} when a body is too long; 'BOUND_REACHED', the name of a bound, its value and what the
--       queue holds, when it takes no more; nil if the queue does not exist; a string when its
--       settings are no numbers
-- NEEDS fence, store_new, journal_on_queue

local messages, data, fence, bounds = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local batch, token, digest, keep_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local longest, delays, suffixes = ARGV[5], ARGV[6], ARGV[7]

local refused = refused_by_fence(fence, batch, token, digest)
if refused then
  return refused
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

-- As in `send`, each id has its own microsecond, in ten digits of base 36. Ids of one chunk differ
-- in the last three; the first seven are formatted once, which halves the time.
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
if journal_is_full() then return JOURNAL_FULL end
local _, refusal = store_new(messages, data, bounds, own[1], own[4], time, scores, fields)
if refusal then
  return refusal
end
close_journal()
remember_chunk(fence, token, digest, keep_s)
return 1
