#!lua
-- send: store bodies and schedule when their messages become visible; all of them or none.
--
-- KEYS  messages      zset  <ns>:<queue>
--       data          hash  <ns>:<queue>:Q
--       bounds        hash  <ns>:<queue>:bounds
-- ARGV  delay         seconds, or '' for the queue's own
--       longest       bytes of the longest body of the whole batch
--       channel       pub/sub channel, or ''
--       first         how many of the batch went before these
--       suffix, body  …     22 random characters for the id, and a payload
-- REPLY the ids; an integer (maxsize) when a body is too long; nil if the queue does not exist;
--       a string if its settings are not numbers; 'BOUND_REACHED', the name of a bound, its value and
--       what the queue holds, when it takes no more
-- NEEDS store_new, journal_on_queue

local messages, data, bounds = KEYS[1], KEYS[2], KEYS[3]
local delay, longest, channel, first = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local own = redis.call('HMGET', data, 'vt', 'delay', 'maxsize', 'totalsent')
if not own[1] then
  return nil
end
local wait, maxsize = tonumber(delay == '' and own[2] or delay), tonumber(own[3])
if not (wait and maxsize and wait >= 0 and wait <= 9999999) then
  return 'delay is "' .. tostring(own[2]) .. '", maxsize is "' .. tostring(own[3]) .. '"'
end
if maxsize ~= -1 and tonumber(longest) > maxsize then
  return maxsize
end

local time = redis.call('TIME')
local score = time[1] * 1000 + math.floor(time[2] / 1000) + math.floor(wait * 1000 + 0.5)

-- Messages of one millisecond are received in the order of their ids. Each message of a batch gets
-- its own microsecond, so a batch is received in the order it was sent.
local function base36(n)
  -- One string of ten digits, enough until 2085; appending digit by digit takes three times as long.
  local digits = {}
  for i = 10, 1, -1 do
    local digit = n % 36
    digits[i] = digit + (digit < 10 and 48 or 87)
    n = (n - digit) / 36
  end
  return string.char(unpack(digits))
end

local micros = time[1] * 1000000 + time[2] + first
local ids, scores, fields = {}, {}, {}
for i = 5, #ARGV, 2 do
  local n = i - 5
  local id = base36(micros + n / 2) .. ARGV[i]
  ids[n / 2 + 1] = id
  scores[n + 1], scores[n + 2] = score, id
  fields[n + 1], fields[n + 2] = id, ARGV[i + 1]
end

if journal_is_full() then return JOURNAL_FULL end
local fit, refusal = store_new(messages, data, bounds, own[1], own[4], time, scores, fields)
if refusal then
  return refusal
end
close_journal()
if channel ~= '' then
  local size = redis.call('ZCARD', messages) - fit
  for i = 1, fit do
    redis.call('PUBLISH', channel, size + i)
  end
end
return ids
