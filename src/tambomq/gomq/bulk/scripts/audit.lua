-- audit: whether two keys contradict each other, and if asked, put that right.
--
-- KEYS  one     any     SUBSCRIBED_KEYS, CONSUMERS_<key>, SUBSCRIPTIONS_<consumer> or a list MESSAGES_…
--       other   set     one of these, or PEERS_<consumer>
--       last    string  LASTACTION_<peer>
-- ARGV  what    see below
--       mine    what is in the first
--       its     what should be in the second
--       mend    '1' to put it right
--       keep_s  for how long the time of a last action is kept
-- REPLY 1 if it is wrong, or was, else 0

local one, other, last = KEYS[1], KEYS[2], KEYS[3]
local what, mine, its, mend, keep_s = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5]

local look = {}

-- Both should know of each other.
function look.pair()
  if redis.call('SISMEMBER', one, mine) == 0 or redis.call('SISMEMBER', other, its) == 1 then
    return 0
  end
  if mend then
    redis.call('SADD', other, its)
  end
  return 1
end

-- Nobody is there any more.
function look.empty()
  if redis.call('SISMEMBER', one, mine) == 0 or redis.call('EXISTS', other) == 1 then
    return 0
  end
  if mend then
    redis.call('SREM', one, mine)
  end
  return 1
end

-- Somebody is there, and is not listed.
function look.unlisted()
  if redis.call('EXISTS', one) == 0 or redis.call('SISMEMBER', other, its) == 1 then
    return 0
  end
  if mend then
    redis.call('SADD', other, its)
  end
  return 1
end

-- Messages wait for a client that is not known: it is, until it has been silent for too long.
function look.peer()
  local wrong = look.unlisted()
  if wrong == 1 and mend then
    redis.call('SET', last, redis.call('TIME')[1], 'EX', keep_s, 'NX')
  end
  return wrong
end

return look[what]()
