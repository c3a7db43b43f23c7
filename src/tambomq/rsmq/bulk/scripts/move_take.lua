#!lua flags=allow-oom
-- move_take: remove messages that are not in flight from a queue, and store them as in transit.
--
-- KEYS  messages  zset  <ns>:<queue>
--       data      hash  <ns>:<queue>:Q
--       move      hash  <ns>:<queue>:move:<id>
--       transit   list  <ns>:<queue>:move:<id>:transit
-- ARGV  run           id of the move, if it is new
--       count         messages at most
--       free_bytes    maximum total size, in bytes; the last one may exceed it
--       skip          how many to pass over
--       later         1 for those that are delayed and were never received, 0 for those that wait
-- REPLY id of the move, the batch's number, how many of those looked at stay, and the batch: for
--       each message '<due or 0> <rc> <id>' and its body; nil if the queue does not exist
-- NEEDS journal_on_move

local messages, data, move, transit = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local run, count, free_bytes, skip = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local later = ARGV[5] == '1'

if redis.call('HSETNX', move, 'run', run) == 0 then
  run = redis.call('HGET', move, 'run')
end
local number = tonumber(redis.call('HGET', move, 'number') or 0)
if redis.call('EXISTS', transit) == 1 then
  return {run, number, 0, redis.call('LRANGE', transit, 0, -1)}
elseif redis.call('HEXISTS', data, 'vt') == 0 then
  return nil
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local low, high = '-inf', now
if later then
  low, high = '(' .. now, '+inf'
end
local found = redis.call('ZRANGEBYSCORE', messages, low, high, 'WITHSCORES', 'LIMIT', skip, count)
local names = {}
for i = 1, #found, 2 do
  names[i], names[i + 1] = found[i], found[i] .. ':rc'
end
local stored = #names > 0 and redis.call('HMGET', data, unpack(names)) or {}

local rows, taken, fields, stay = {}, {}, {}, 0
for i = 1, #found, 2 do
  local id, body, rc = found[i], stored[i], tonumber(stored[i + 1]) or 0
  if free_bytes <= 0 then
    break
  elseif not body or (later and rc > 0) then
    stay = stay + 1
  else
    rows[#rows + 1] = string.format('%.0f %.0f %s', later and tonumber(found[i + 1]) or 0, rc, id)
    rows[#rows + 1] = body
    taken[#taken + 1] = id
    for _, suffix in ipairs({'', ':rc', ':fr', ':why'}) do
      fields[#fields + 1] = id .. suffix
    end
    free_bytes = free_bytes - #body
  end
end
if #taken > 0 then
  redis.call('RPUSH', transit, unpack(rows))
  redis.call('HSET', move, 'number', number + 1)
  redis.call('ZREM', messages, unpack(taken))
  redis.call('HDEL', data, unpack(fields))
  moved(taken)
end
return {run, number + 1, stay, rows}
