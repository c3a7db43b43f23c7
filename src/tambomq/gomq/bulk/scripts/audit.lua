-- audit: check whether two keys contradict each other, and repair that if asked.
--
-- KEYS  one     any     SUBSCRIBED_KEYS, CONSUMERS_<key>, SUBSCRIPTIONS_<consumer> or a list MESSAGES_…
--       other   set     one of these, or PEERS_<consumer>
--       last    string  LASTACTION_<peer>
-- ARGV  what    which check: a function below
--       mine    member of the first
--       its     member that the second should have
--       mend    '1' to put it right
--       keep_s  TTL of LASTACTION_<peer>, in seconds
-- REPLY 1 if it is wrong, or was, else 0

local one, other, last = KEYS[1], KEYS[2], KEYS[3]
local what, mine, its, mend, keep_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5]

local check = {}

-- A member of the first set must have its counterpart in the second.
function check.pair()
  if redis.call('SISMEMBER', one, mine) == 0 or redis.call('SISMEMBER', other, its) == 1 then
    return 0
  end
  if mend then
    redis.call('SADD', other, its)
  end
  return 1
end

-- A member of the first set must have a second set that is not empty.
function check.empty()
  if redis.call('SISMEMBER', one, mine) == 0 or redis.call('EXISTS', other) == 1 then
    return 0
  end
  if mend then
    redis.call('SREM', one, mine)
  end
  return 1
end

-- If the first key exists, it must be listed in the second.
function check.unlisted()
  if redis.call('EXISTS', one) == 0 or redis.call('SISMEMBER', other, its) == 1 then
    return 0
  end
  if mend then
    redis.call('SADD', other, its)
  end
  return 1
end

-- Messages wait for a peer that is not listed: list it, until it times out.
function check.peer()
  local wrong = check.unlisted()
  if wrong == 1 and mend then
    redis.call('SET', last, redis.call('TIME')[1], 'EX', keep_s, 'NX')
  end
  return wrong
end

return check[what]()
