-- claims: for other scripts: whether a claim may be made, or ended.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- What to answer instead of making claim *number*, or nil; and the fields claim and mark.
local function not_to_make(ledger, owner, number)
  local lease = redis.call('HMGET', ledger, 'owner', 'label', 'acked', 'claim', 'mark')
  local acked, answer = tonumber(lease[3]) or 0, nil
  if lease[1] ~= owner then
    answer = {'fenced', lease[2] or ''}
  elseif acked ~= number - 1 then
    answer = {'astray', acked}
  end
  return answer, lease[4], lease[5]
end

-- What to answer instead of ending claim *number*, or nil; and the field claim. What has ended
-- before has nothing left, and nothing of it is counted again.
local function not_to_end(ledger, owner, number, mark)
  local lease = redis.call('HMGET', ledger, 'owner', 'label', 'acked', 'claim', 'mark')
  local answer
  if lease[1] ~= owner then
    answer = {'fenced', lease[2] or ''}
  elseif (tonumber(lease[3]) or 0) >= number then
    answer = {0, 0, 0, 0, 0}
  elseif lease[4] and (tonumber(lease[4]) ~= number or lease[5] ~= mark) then
    answer = {'astray', tonumber(lease[4])}
  end
  return answer, lease[4]
end
