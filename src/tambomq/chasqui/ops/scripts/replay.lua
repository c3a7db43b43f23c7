-- replay: let dead letters wait for a worker again, each once.
--
-- KEYS  dlq         stream  {chasqui:<queue>}:dlq
--       stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
--       stalls      string  {chasqui:<queue>}:stalls:<id>, without the id
-- ARGV  cap         jobs that the stream may hold
--       events_cap  events that are kept; 0 writes none
--       ts          now, in ms
--       letter, id, payload, name  …  a dead letter, and the job it becomes
-- REPLY how many; 1 if there was no room for all

local dlq, stream, events, stalls = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local cap, events_cap, ts = ARGV[1], ARGV[2], ARGV[3]

local free, replayed = room(stream, cap), 0
for i = 4, #ARGV, 4 do
  if replayed >= free then
    return {replayed, 1}
  end
  local letter, id, payload, name = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if redis.call('XDEL', dlq, letter) == 1 then
    if name == '' then
      redis.call('XADD', stream, '*', 'd', payload)
    else
      redis.call('XADD', stream, '*', 'd', payload, 'n', name)
    end
    redis.call('DEL', stalls .. id)
    note(events, events_cap, 'waiting', id, ts, name)
    replayed = replayed + 1
  end
end
return {replayed, 0}
