-- Takes a lock under the next fence. Needs lock, holder, lease, now, micro and fence; gives ends and fence.

ends, fence = now + lease, math.max(fence + 1, micro)
redis.call('HSET', lock, 'holder', holder, 'ends', ends, 'fence', fence)
