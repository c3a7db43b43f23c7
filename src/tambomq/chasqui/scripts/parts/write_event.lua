-- write_event: append an event to the events stream.

-- Events are best effort: if one cannot be written, the operation still succeeds.
local function write_event(events, events_cap, e, id, ts, name, ...)
  if events_cap == '0' then
    return
  elseif name == '' then
    redis.pcall('XADD', events, 'MAXLEN', '~', events_cap, '*', 'e', e, 'id', id, 'ts', ts, ...)
  else
    redis.pcall('XADD', events, 'MAXLEN', '~', events_cap, '*', 'e', e, 'id', id, 'ts', ts, 'n', name, ...)
  end
end
