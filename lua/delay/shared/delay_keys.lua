-- Names the keys of a slot of a queue.
-- gives: head, tasks, bodies, due, running, done, dead

local head, tasks, bodies, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local running, done, dead = KEYS[5], KEYS[6], KEYS[7]
