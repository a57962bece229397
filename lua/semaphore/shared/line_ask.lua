-- Asks the process of a waiter, for whom there may be a claim, to make its call: within 25 ms, or others are
-- served; within 300 ms if the waiter has lost its place before, and has come back. told says that this time
-- begins now, and the caller tells the process. process makes this call, and fits is whether there may be a
-- claim.
-- needs: present, now, process, fits, place, whose, alive
-- gives: told, alive

local told = fits and whose ~= process and alive > now + 300
if told then
  alive = now + (place > 0 and 25 or 300)
  redis.call('ZADD', present, alive, whose)
end
