-- message_id: read the id of a message.

-- Messages of this implementation begin with their id. Those of other writers may not, or may have
-- none: nil.
local function id_of(message)
  local id = message:match('^{"id":"([^"\\]+)"')
  if not id then
    local sound, found = pcall(cjson.decode, message)
    id = sound and type(found) == 'table' and found['id']
  end
  -- The journal's size accounting assumes short ids, as servers generate them.
  return type(id) == 'string' and #id > 0 and #id <= 160 and id or nil
end
