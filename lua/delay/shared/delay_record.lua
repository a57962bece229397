-- parse splits a task's record, write writes it.
-- needs: tasks
-- gives: parse, write

local function parse(record)
  local state, at, try, fence, call, reason =
    string.match(record or '', '^(%l) (%d+) (%d+) (%d+) (%S+) (.*)$')
  return state, tonumber(at), tonumber(try), fence, call, reason
end
local function write(id, state, at, try, fence, call, reason)
  redis.call('HSET', tasks, id, table.concat({state, at, try, fence, call, reason}, ' '))
end
