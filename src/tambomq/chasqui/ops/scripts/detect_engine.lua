-- detect_engine: check whether processes of a released engine share a queue.
--
-- KEYS  stream          stream  {chasqui:<queue>}:stream
--       lock            string  {chasqui:<queue>}:promoter:lock
--       scheduler_lock  string  {chasqui:<queue>}:scheduler:lock
--       consumers       string  {chasqui:<queue>}:tambo:consumers
--       workers         set     {chasqui:<queue>}:tambo:workers
--       converted       string  {chasqui:<queue>}:tambo:converted
-- ARGV  none
-- REPLY 0 none, 1 an engine shares it, 2 the same, and members of the page's dialect may be left
-- NEEDS dialect

local stream, lock, scheduler_lock = KEYS[1], KEYS[2], KEYS[3]
local consumers, workers, converted = KEYS[4], KEYS[5], KEYS[6]

if not has_engine(stream, lock, scheduler_lock, consumers, workers) then
  return 0
end
return redis.call('GET', converted) == '1' and 1 or 2
