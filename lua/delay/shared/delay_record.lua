-- parse splits a task's record, write writes it.
-- needs: tasks
-- gives: parse, write

local function parse(record)
  local state, at, try, fence, group, reason =
    string.match(record or '', '^(%l) (%d+) (%d+) (%d+) (%d+) (.*)$')
  return state, tonumber(at), tonumber(try), fence, tonumber(group), reason
end
local function write(id, state, at, try, fence, group, reason)
  redis.call('HSET', tasks, id, table.concat({state, at, try, fence, group, reason}, ' '))
end
