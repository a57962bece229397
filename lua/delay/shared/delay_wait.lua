-- Gives the function wait, which lets a task wait until it is due. Needs suspects, due and write.

local function wait(id, state, at, try, fence, call, reason)
  write(id, state, at, try, fence, call, reason)
  redis.call('ZADD', due, state == 's' and suspects + at or at, id)
end
