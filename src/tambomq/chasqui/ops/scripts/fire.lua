-- fire: add the due jobs of a repeatable spec, if the caller is the leader.
--
-- KEYS  stream          stream  {chasqui:<queue>}:stream
--       delayed         zset    {chasqui:<queue>}:delayed
--       repeat_         zset    {chasqui:<queue>}:repeat
--       spec            hash    {chasqui:<queue>}:repeat:spec:<key>
--       lock            string  {chasqui:<queue>}:scheduler:lock
--       events          stream  {chasqui:<queue>}:events
--       unless_queued   hash    {chasqui:<queue>}:tambo:unless_queued
--       previous        hash    {chasqui:<queue>}:tambo:previous
-- ARGV  holder          id of the caller
--       key             key of the spec
--       was             its next fire, as it was read
--       next            the one after; 0 if there is none
--       limit           how often it may fire in all; 0 for no limit
--       end_before      when it ends, in ms; 0 for never
--       cap             length cap of the stream
--       events_cap      length cap of the events stream; 0: write no events
--       ts              current time, in ms
--       id, name, payload, member  …  a job, and how it waits in delayed where the stream is full
-- REPLY how many jobs were added, 1 if the spec has ended; -1 if another leads or has fired
-- NEEDS write_event, stream_cap, previous_job, journal_on, journal_on_queue

local stream, delayed, repeat_, spec, lock, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local unless_queued, previous = KEYS[7], KEYS[8]
local holder, key, was, next, limit, end_before = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local cap, events_cap, ts = ARGV[7], ARGV[8], ARGV[9]

-- A leader that was frozen must not fire again what its successor has fired.
local score = redis.call('ZSCORE', repeat_, key)
if redis.call('GET', lock) ~= holder or not score or math.floor(math.max(0, score)) ~= tonumber(was) then
  return {-1, 0}
end
limit, next, end_before = tonumber(limit), tonumber(next), tonumber(end_before)
local fired = math.floor(tonumber(redis.call('HGET', spec, 'fired') or '0') or 0)
local free, made = free_slots(stream, cap), 0
-- Fires are skipped while the job of the last one is in the queue, unless another client has replaced
-- the spec since: then the digest differs.
local known = redis.call('HGET', unless_queued, key)
if known and known:sub(1, 40) ~= redis.sha1hex(redis.call('HGET', spec, 'spec') or '') then
  known = false
end
local place = known and redis.call('HGET', previous, known:sub(41))
-- Read the key first: failing after the first write would fire the same jobs again.
redis.call('ZCARD', delayed)
for i = 10, #ARGV, 4 do
  if limit > 0 and fired >= limit or place and is_queued(stream, delayed, place) then
    break
  end
  local id, name, payload, member = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if journal_is_full() then return JOURNAL_FULL end
  if made >= free then
    place = known and member
    if redis.call('ZADD', delayed, ts, member) == 1 then
      stored_delayed(id, name, member, ts)
    end
  else
    local entry
    if name == '' then
      entry = redis.call('XADD', stream, '*', 'd', payload)
    else
      entry = redis.call('XADD', stream, '*', 'd', payload, 'n', name)
    end
    place = known and entry
    stored(id, name, payload)
    write_event(events, events_cap, 'waiting', id, ts, name)
  end
  if known then
    forget_previous(previous, known)
    known = known:sub(1, 40) .. id
    redis.call('HSET', previous, id, place)
    redis.call('HSET', unless_queued, key, known)
  end
  fired, made = fired + 1, made + 1
end
close_journal()
if made > 0 then
  redis.call('HSET', spec, 'fired', string.format('%.0f', fired))
end
if next <= 0 or (end_before > 0 and next > end_before) or (limit > 0 and fired >= limit) then
  redis.call('ZREM', repeat_, key)
  redis.call('DEL', spec)
  if redis.call('HDEL', unless_queued, key) == 1 then
    forget_previous(previous, known)
  end
  return {made, 1}
end
redis.call('ZADD', repeat_, ARGV[4], key)
return {made, 0}
