-- lead: become or stay the leader, if nobody else is.
--
-- KEYS  lock    string  {chasqui:<queue>}:promoter:lock or …:scheduler:lock
-- ARGV  holder  who
--       ttl     seconds until another may, unless this is said again
-- REPLY 1 leads, 0 another does

local lock = KEYS[1]
local holder, ttl = ARGV[1], ARGV[2]

return leads(lock, holder, ttl) and 1 or 0
