#!lua flags=allow-oom
-- move_take: let messages leave a main queue, and write down what they were.
--
-- KEYS  queue    list  QUEUE_<key>
--       move     hash  MOVE_<id>:<key>
--       transit  list  TRANSIT_<id>:<key>
-- ARGV  run           a name for the move, if it is new
--       count         messages at most
--       room          bytes at which no more are added
--       journal       stream that is told of them, if there is such a journal
--       state         its hash
--       most_entries  entries that it holds
--       most_bytes    and bytes
-- REPLY the move's name, the batch's number, 0, and the batch: for each message '' and what stood
--       there

local queue, move, transit = KEYS[1], KEYS[2], KEYS[3]
local run, count, room = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local journal, state, most_entries, most_bytes = ARGV[4], ARGV[5], ARGV[6], ARGV[7]

if redis.call('HSETNX', move, 'run', run) == 0 then
  run = redis.call('HGET', move, 'run')
end
local number = tonumber(redis.call('HGET', move, 'number') or 0)
if redis.call('EXISTS', transit) == 1 then
  return {run, number, 0, redis.call('LRANGE', transit, 0, -1)}
end
local rows, ids = {}, {}
for _, element in ipairs(redis.call('LRANGE', queue, 0, count - 1)) do
  if room > 0 then
    rows[#rows + 1], rows[#rows + 2] = '', element
    ids[#ids + 1] = id_of(element)
    room = room - #element
  end
end
if #rows > 0 then
  redis.call('RPUSH', transit, unpack(rows))
  redis.call('HSET', move, 'number', number + 1)
  redis.call('LTRIM', queue, #rows / 2, -1)
  if has_begun(state) then
    tell('moved', '', ids, journal, state, most_entries, most_bytes)
  end
end
return {run, number + 1, 0, rows}
