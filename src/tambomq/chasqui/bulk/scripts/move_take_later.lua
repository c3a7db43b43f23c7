#!lua flags=allow-oom
-- move_take_later: remove delayed jobs from a queue, and store them as in transit.
--
-- KEYS  delayed           zset    {chasqui:<queue>}:delayed
--       move              hash    {chasqui:<queue>}:move:<id>
--       transit           list    {chasqui:<queue>}:move:<id>:transit
--       events            stream  {chasqui:<queue>}:events
--       marker, index     …       strings {chasqui:<queue>}:dlid:<id> and didx:<id>, of each job
-- ARGV  run               id of the move, if it is new
--       events_cap        length cap of the events stream; 0: write no events
--       member, id, name  …       of each job; id '' if the member cannot be decoded
-- REPLY id of the move, the batch's number, 0, and the batch: for each job 'd <due> <0, or the
--       milliseconds for which its id is taken>' and its member
-- NEEDS moved_events

local delayed, move, transit, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local run, events_cap = ARGV[1], ARGV[2]

if redis.call('HSETNX', move, 'run', run) == 0 then
  run = redis.call('HGET', move, 'run')
end
local number = tonumber(redis.call('HGET', move, 'number') or 0)
if redis.call('EXISTS', transit) == 1 then
  return {run, number, 0, redis.call('LRANGE', transit, 0, -1)}
end
local rows, jobs = {}, {}
for i = 3, #ARGV, 3 do
  local member, id, name = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local place = 5 + (i - 3) / 3 * 2
  local marker, index = unpack(KEYS, place, place + 1)
  local due = redis.call('ZSCORE', delayed, member)
  if due then
    local taken_ms = 0
    if redis.call('GET', index) == member then
      taken_ms = math.max(0, redis.call('PTTL', marker))
      redis.call('DEL', marker, index)
    end
    redis.call('ZREM', delayed, member)
    rows[#rows + 1] = string.format('d %.0f %.0f', tonumber(due), taken_ms)
    rows[#rows + 1] = member
    jobs[#jobs + 1], jobs[#jobs + 2] = id, name
  end
end
if #rows > 0 then
  redis.call('RPUSH', transit, unpack(rows))
  redis.call('HSET', move, 'number', number + 1)
  write_moved_events(events, events_cap, jobs)
end
return {run, number + 1, 0, rows}
