#!lua
-- move_put: add a batch of jobs from another queue, all or none, exactly once.
--
-- KEYS  stream          stream  {chasqui:<queue>}:stream
--       events          stream  {chasqui:<queue>}:events
--       delayed         zset    {chasqui:<queue>}:delayed
--       fence           hash    {chasqui:<queue>}:fence:<query>
--       lock            string  {chasqui:<queue>}:promoter:lock
--       scheduler_lock  string  {chasqui:<queue>}:scheduler:lock
--       consumers       string  {chasqui:<queue>}:tambo:consumers
--       workers         set     {chasqui:<queue>}:tambo:workers
--       converted       string  {chasqui:<queue>}:tambo:converted
--       marker, index   …       strings {chasqui:<queue>}:dlid:<id> and didx:<id>, of each job whose
--                      id is taken
-- ARGV  number          of the batch; each is higher than those before it
--       checksum        checksum of the positions so far, stored in the field `mark`
--       cap             length cap of the stream
--       events_cap      length cap of the events stream; 0: write no events
--       ts              current time, in ms
--       dialect         of delayed members: 'page', 'engine', or 'auto' (engine if one shares the queue)
--       waiting         how many jobs are not delayed
--       id, name, run_at, taken_ms, head, payload  …  a job: its id and name; when it is due, '' for
--                      now; for how long its id is taken, 0 if it is not; envelope or delayed
--                      member, and how many bytes of that stand before the envelope
-- REPLY 1 added, 0 was added before, -3 the stream is full; the leader's name if it could not read
--       the delayed ones
-- NEEDS dialect, write_event, stream_cap, journal_on, journal_on_queue

local stream, events, delayed, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lock, scheduler_lock, consumers, workers, converted = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local number, checksum, cap = ARGV[1], ARGV[2], ARGV[3]
local events_cap, ts, dialect, waiting = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])

local known = redis.call('HMGET', fence, 'last', 'count', 'sum')
if tonumber(number) <= (tonumber(known[1]) or 0) then
  return 0
elseif free_slots(stream, cap) < waiting then
  return -3
end
local shorten = false
if (#ARGV - 7) / 6 > waiting then
  local holder = dialect == 'page' and is_foreign_lock(lock)
  if holder then
    return holder
  end
  shorten = dialect == 'auto' and not has_engine(stream, lock, scheduler_lock, consumers, workers, delayed)
end
-- Read the keys first: one of another type then fails before anything is written.
redis.call('ZCARD', delayed)

if journal_is_full() then return JOURNAL_FULL end
local keys, place, sum, count = {unpack(KEYS, 10)}, 1, tonumber(known[3]) or 0, 0
for i = 8, #ARGV, 6 do
  local id, name, run_at, taken_ms = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local head, payload = tonumber(ARGV[i + 4]), ARGV[i + 5]
  if run_at ~= '' then
    if shorten and fits_page(payload) then
      head, payload = head - 3, shortened(payload)
    end
    if redis.call('ZADD', delayed, run_at, payload) == 1 then
      stored_delayed(id, name, payload, run_at, count + 1)
    end
    write_event(events, events_cap, 'delayed', id, ts, name, 'delay_ms', run_at - ts)
    if taken_ms ~= '0' then
      redis.call('SET', keys[place], '1', 'PX', taken_ms)
      redis.call('SET', keys[place + 1], payload, 'PX', taken_ms)
      place = place + 2
    end
  else
    if name == '' then
      redis.call('XADD', stream, '*', 'd', payload)
    else
      redis.call('XADD', stream, '*', 'd', payload, 'n', name)
    end
    stored(id, name, payload, count + 1)
  end
  sum = (sum + tonumber(redis.sha1hex(payload:sub(head + 1)):sub(1, 12), 16)) % 2 ^ 48
  count = count + 1
end
close_journal()
if shorten or dialect == 'page' then
  redis.call('DEL', converted)
end
redis.call('HSET', fence, 'last', number, 'mark', checksum,
  'count', (tonumber(known[2]) or 0) + count, 'sum', string.format('%.0f', sum))
-- The fence must not expire before the move ends: `moves.done` sets its TTL then.
redis.call('PERSIST', fence)
return 1
