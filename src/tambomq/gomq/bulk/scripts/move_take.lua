#!lua flags=allow-oom
-- move_take: remove messages from a main queue, and store them as in transit.
--
-- KEYS  queue    list  QUEUE_<key>
--       move     hash  MOVE_<id>:<key>
--       transit  list  TRANSIT_<id>:<key>
-- ARGV  run           id of the move, if it is new
--       count         messages at most
--       free_bytes    maximum total size, in bytes; the last one may exceed it
-- REPLY id of the move, the batch's number, 0, and the batch: '' and the list
--       element for each message
-- NEEDS message_id, journal_on_move

local queue, move, transit = KEYS[1], KEYS[2], KEYS[3]
local run, count, free_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

if redis.call('HSETNX', move, 'run', run) == 0 then
  run = redis.call('HGET', move, 'run')
end
local number = tonumber(redis.call('HGET', move, 'number') or 0)
if redis.call('EXISTS', transit) == 1 then
  return {run, number, 0, redis.call('LRANGE', transit, 0, -1)}
end
local rows, ids = {}, {}
for _, element in ipairs(redis.call('LRANGE', queue, 0, count - 1)) do
  if free_bytes > 0 then
    rows[#rows + 1], rows[#rows + 2] = '', element
    ids[#ids + 1] = id_of(element)
    free_bytes = free_bytes - #element
  end
end
if #rows > 0 then
  redis.call('RPUSH', transit, unpack(rows))
  redis.call('HSET', move, 'number', number + 1)
  redis.call('LTRIM', queue, #rows / 2, -1)
  moved(ids)
end
return {run, number + 1, 0, rows}
