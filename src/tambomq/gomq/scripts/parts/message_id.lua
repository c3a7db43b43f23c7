-- message_id: for other scripts: whom a message is about.
--
-- KEYS  none
-- ARGV  none
-- REPLY none

-- A message begins with its id. What a stranger has written may not, or may have none; then there
-- is nobody to tell of.
local function id_of(message)
  local id = message:match('^{"id":"([^"\\]+)"')
  if not id then
    local sound, found = pcall(cjson.decode, message)
    id = sound and type(found) == 'table' and found['id']
  end
  -- Entries are counted as if ids were short, and those of servers are.
  return type(id) == 'string' and #id > 0 and #id <= 160 and id or nil
end
