-- wait lets a task wait until it is due.
-- needs: write, due, suspects
-- gives: wait

local function wait(id, state, at, try, fence, group, reason)
  write(id, state, at, try, fence, group, reason)
  redis.call('ZADD', due, state == 's' and suspects + at or at, id)
end
