-- digest: for other scripts: what a body is known by.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- Its length, and a short hash of how it begins and ends: a long body must not keep the server
-- busy, and all that is looked for is a body that somebody has replaced.
local function digest(body)
  local ends = #body > 512 and body:sub(1, 256) .. body:sub(-256) or body
  return #body .. ':' .. redis.sha1hex(ends):sub(1, 12)
end
