-- upsert: let a job recur, as new or instead of what recurred under its key.
--
-- KEYS  repeat_         zset    {chasqui:<queue>}:repeat
--       spec            hash    {chasqui:<queue>}:repeat:spec:<key>
--       stream          stream  {chasqui:<queue>}:stream
--       lock            string  {chasqui:<queue>}:promoter:lock
--       scheduler_lock  string  {chasqui:<queue>}:scheduler:lock
--       consumers       string  {chasqui:<queue>}:tambo:consumers
--       workers         set     {chasqui:<queue>}:tambo:workers
--       window          zset    {chasqui:<queue>}:idmp:requests
-- ARGV  key             the spec's
--       next            its next fire, in ms
--       body            the spec
--       alone           1 if a released engine would drop it
--       request         names this request: made twice, it counts once
-- REPLY 1, or 0 if a released engine shares the queue and would drop it

local repeat_, spec, stream, lock, scheduler_lock = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local consumers, workers, window = KEYS[6], KEYS[7], KEYS[8]
local key, next, body, alone, request = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

-- Repeated after its reply was lost, it would undo what another has done since.
if seen(window, request) then
  return 1
end
if alone == '1' and has_signs(stream, lock, scheduler_lock, consumers, workers) then
  return 0
end
-- What is wrong with a key must be found before anything is written.
redis.call('ZCARD', repeat_)
redis.call('HSET', spec, 'spec', body)
redis.call('ZADD', repeat_, next, key)
remember(window, request)
return 1
