-- claims: check whether a claim may be made or acknowledged.

-- Return the error reply if claim *number* must not be made, or nil; and the fields claim and mark.
local function refused_claim(ledger, owner, number)
  local lease = redis.call('HMGET', ledger, 'owner', 'label', 'acked', 'claim', 'mark')
  local acked, answer = tonumber(lease[3]) or 0, nil
  if lease[1] ~= owner then
    answer = {'fenced', lease[2] or ''}
  elseif acked ~= number - 1 then
    answer = {'wrong_claim', acked}
  end
  return answer, lease[4], lease[5]
end

-- Return the reply if claim *number* must not be ended, or nil; and the field claim. A claim that has
-- already ended gets zeros: nothing is left, and nothing is counted twice.
local function refused_ack(ledger, owner, number, claim_token)
  local lease = redis.call('HMGET', ledger, 'owner', 'label', 'acked', 'claim', 'mark')
  local answer
  if lease[1] ~= owner then
    answer = {'fenced', lease[2] or ''}
  elseif (tonumber(lease[3]) or 0) >= number then
    answer = {0, 0, 0, 0, 0}
  elseif lease[4] and (tonumber(lease[4]) ~= number or lease[5] ~= claim_token) then
    answer = {'wrong_claim', tonumber(lease[4])}
  end
  return answer, lease[4]
end
