#!lua
-- move_put: add the jobs of a batch that comes from another queue, all of them and once.
--
-- KEYS  stream         stream  {chasqui:<queue>}:stream
--       events         stream  {chasqui:<queue>}:events
--       delayed        zset    {chasqui:<queue>}:delayed
--       lock           string  {chasqui:<queue>}:promoter:lock
--       fence          hash    {chasqui:<queue>}:fence:<query>
--       marker, index  …       strings {chasqui:<queue>}:dlid:<id> and didx:<id>, of each job whose
--                      id is taken
-- ARGV  number         of the batch; each is higher than those before it
--       mark           what else is to be remembered of the last
--       cap            jobs that the stream may hold
--       events_cap     events that are kept; 0 writes none
--       ts             now, in ms
--       ours           how the names of leaders begin that read any member; '' if all read these
--       waiting        how many jobs are not delayed
--       id, name, run_at, taken_ms, head, payload  …  a job: its id and name; when it is due, '' for
--                      now; for how long its id is taken, 0 if it is not; envelope or delayed
--                      member, and how many bytes of that stand before the envelope
-- REPLY 1 added, 0 was added before, -3 there is no room; the leader's name if it could not read
--       the delayed ones

local stream, events, delayed, lock, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local number, mark, cap = ARGV[1], ARGV[2], ARGV[3]
local events_cap, ts, ours, waiting = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])

local known = redis.call('HMGET', fence, 'last', 'count', 'sum')
if tonumber(number) <= (tonumber(known[1]) or 0) then
  return 0
elseif room(stream, cap) < waiting then
  return -3
end
local holder = ours ~= '' and (#ARGV - 7) / 6 > waiting and redis.call('GET', lock)
if holder and holder:sub(1, #ours) ~= ours then
  return holder
end
-- What is of another type is found before anything is written.
redis.call('ZCARD', delayed)

local keys, place, sum, count = {unpack(KEYS, 6)}, 1, tonumber(known[3]) or 0, 0
for i = 8, #ARGV, 6 do
  local id, name, run_at, taken_ms = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local head, payload = tonumber(ARGV[i + 4]), ARGV[i + 5]
  if run_at ~= '' then
    redis.call('ZADD', delayed, run_at, payload)
    note(events, events_cap, 'delayed', id, ts, name, 'delay_ms', run_at - ts)
    if taken_ms ~= '0' then
      redis.call('SET', keys[place], '1', 'PX', taken_ms)
      redis.call('SET', keys[place + 1], payload, 'PX', taken_ms)
      place = place + 2
    end
  elseif name == '' then
    redis.call('XADD', stream, '*', 'd', payload)
  else
    redis.call('XADD', stream, '*', 'd', payload, 'n', name)
  end
  sum = (sum + tonumber(redis.sha1hex(payload:sub(head + 1)):sub(1, 12), 16)) % 2 ^ 48
  count = count + 1
end
redis.call('HSET', fence, 'last', number, 'mark', mark,
  'count', (tonumber(known[2]) or 0) + count, 'sum', string.format('%.0f', sum))
-- It must not end before the move does: `transit.done` says when that is.
redis.call('PERSIST', fence)
return 1
