-- require_unheld: check that no live query holds a lease.

-- Returns the time (ms), the reply if a live query holds the lease, and the fields claim and size.
-- *dead_holder* is the label of a holder that the caller knows to be dead, or ''.
local function require_unheld(ledger, dead_holder)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local lease = redis.call('HMGET', ledger, 'owner', 'until', 'label', 'claim', 'size')
  local held
  if lease[1] and now < (tonumber(lease[2]) or 0) and (dead_holder == '' or lease[3] ~= dead_holder) then
    held = {'held', lease[3] or ''}
  end
  return now, held, lease[4], lease[5]
end
