-- Reads who holds a lock. Needs lock, and now in microseconds; gives micro, the same moment, now in
-- milliseconds, held, which is false where the lease is over, ends and fence.

local micro = now
now = math.floor(micro / 1000)
local record = redis.call('HMGET', lock, 'holder', 'ends', 'fence')
local ends, fence = tonumber(record[2] or 0), tonumber(record[3] or 0)
local held = ends > now and record[1]
