-- note: for other scripts: tell the events stream what happened.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- An event is a courtesy: that it cannot be written must not undo what it tells of.
local function note(events, events_cap, e, id, ts, name, ...)
  if events_cap == '0' then
    return
  elseif name == '' then
    redis.pcall('XADD', events, 'MAXLEN', '~', events_cap, '*', 'e', e, 'id', id, 'ts', ts, ...)
  else
    redis.pcall('XADD', events, 'MAXLEN', '~', events_cap, '*', 'e', e, 'id', id, 'ts', ts, 'n', name, ...)
  end
end
