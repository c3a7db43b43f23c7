-- replay: move dead letters back to the stream, each once.
--
-- KEYS  dlq         stream  {chasqui:<queue>}:dlq
--       stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
--       stalls      string  {chasqui:<queue>}:stalls:<id>, without the id
-- ARGV  cap         length cap of the stream
--       events_cap  length cap of the events stream; 0: write no events
--       ts          current time, in ms
--       letter, id, payload, name  …  a dead letter, and its job
-- REPLY how many; 1 if the stream had no space for all
-- NEEDS write_event, stream_cap

local dlq, stream, events, stalls = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local cap, events_cap, ts = ARGV[1], ARGV[2], ARGV[3]

local free, replayed = free_slots(stream, cap), 0
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
    write_event(events, events_cap, 'waiting', id, ts, name)
    replayed = replayed + 1
  end
end
return {replayed, 0}
