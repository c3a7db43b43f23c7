-- loose: for other scripts: whether a lease is nobody's, so that others may see to it.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- The time, what to answer if a query has it that is alive (but for one that is *gone*, as the
-- caller knows), and the fields claim and size.
local function loose(ledger, gone)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local lease = redis.call('HMGET', ledger, 'owner', 'until', 'label', 'claim', 'size')
  local held
  if lease[1] and now < (tonumber(lease[2]) or 0) and (gone == '' or lease[3] ~= gone) then
    held = {'held', lease[3] or ''}
  end
  return now, held, lease[4], lease[5]
end
