-- upsert: create or replace a repeatable spec.
--
-- KEYS  repeat_         zset    {chasqui:<queue>}:repeat
--       spec            hash    {chasqui:<queue>}:repeat:spec:<key>
--       stream          stream  {chasqui:<queue>}:stream
--       lock            string  {chasqui:<queue>}:promoter:lock
--       scheduler_lock  string  {chasqui:<queue>}:scheduler:lock
--       consumers       string  {chasqui:<queue>}:tambo:consumers
--       workers         set     {chasqui:<queue>}:tambo:workers
--       window          zset    {chasqui:<queue>}:idmp:requests
--       unless_queued   hash    {chasqui:<queue>}:tambo:unless_queued
--       previous        hash    {chasqui:<queue>}:tambo:previous
-- ARGV  key             key of the spec
--       next            its next fire, in ms
--       body            the spec
--       alone           1 if a released engine would drop the spec
--       skips           1 to skip fires while the job of the last one is in the queue
--       request         id of this request: a repeated request has no effect
-- REPLY 1, or 0 if a released engine shares the queue and would drop it
-- NEEDS dialect, dedup_window, previous_job

local repeat_, spec, stream, lock, scheduler_lock = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local consumers, workers, window = KEYS[6], KEYS[7], KEYS[8]
local unless_queued, previous = KEYS[9], KEYS[10]
local key, next, body, alone, skips, request = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

-- A repetition after a lost reply must not undo a later change by another client.
if is_in_window(window, request) then
  return 1
end
if alone == '1' and has_engine(stream, lock, scheduler_lock, consumers, workers) then
  return 0
end
-- Read the keys first: one of another type then fails before anything is written.
redis.call('ZCARD', repeat_)
redis.call('HLEN', previous)
local known = redis.call('HGET', unless_queued, key)
redis.call('HSET', spec, 'spec', body)
redis.call('ZADD', repeat_, next, key)
if skips == '1' then
  redis.call('HSET', unless_queued, key, redis.sha1hex(body) .. (known and known:sub(41) or ''))
elseif known then
  forget_previous(previous, known)
  redis.call('HDEL', unless_queued, key)
end
remember(window, request)
return 1
