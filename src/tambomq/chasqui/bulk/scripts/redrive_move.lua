#!lua
-- redrive_move: move dead letters back to the stream, and record them for an undo.
--
-- KEYS  dlq         stream  {chasqui:<queue>}:dlq
--       stream      stream  {chasqui:<queue>}:stream
--       events      stream  {chasqui:<queue>}:events
--       record      hash    {chasqui:<queue>}:redrive:<id>
--       ledger      stream  {chasqui:<queue>}:redrive:<id>:moved
--       stalls      string  {chasqui:<queue>}:stalls:<id>, without the id
-- ARGV  cap         length cap of the stream
--       events_cap  length cap of the events stream; 0: write no events
--       ts          current time, in ms
--       keep_s      TTL of the record, in seconds
--       letter, id, payload, name  …  a letter, and its job: id, envelope, name or ''
-- REPLY how many this redrive has moved since it began, 0, 0, and 1 if the stream had no space for the
--       rest; nil if it is undone, or not known
-- NEEDS write_event, stream_cap, journal_on, journal_on_queue

local dlq, stream, events, record, ledger, stalls = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local cap, events_cap, ts, keep_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local known = redis.call('HMGET', record, 'state', 'moved')
if not known[1] or known[1] == 'undone' then
  return nil
end
-- Read the keys first: one of another type then fails before anything is written.
redis.call('XLEN', ledger)
local free, count, full = free_slots(stream, cap), 0, 0

for i = 5, #ARGV, 4 do
  local letter, id, payload, name = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local row = redis.call('XRANGE', dlq, letter, letter)[1]
  if row and count >= free then
    full = 1
    break
  elseif row then
    if journal_is_full() then return JOURNAL_FULL end
    local entry
    if name == '' then
      entry = redis.call('XADD', stream, '*', 'd', payload)
    else
      entry = redis.call('XADD', stream, '*', 'd', payload, 'n', name)
    end
    redis.call('XADD', ledger, '*', 'from', letter, 'to', entry, unpack(row[2]))
    stored(id, name, payload, (i - 1) / 4)
    redis.call('XDEL', dlq, letter)
    redis.call('DEL', stalls .. id)
    write_event(events, events_cap, 'waiting', id, ts, name)
    count = count + 1
  end
end
close_journal()
redis.call('HSET', record, 'moved', (tonumber(known[2]) or 0) + count)
redis.call('EXPIRE', record, keep_s)
redis.call('EXPIRE', ledger, keep_s)
return {(tonumber(known[2]) or 0) + count, 0, 0, full}
