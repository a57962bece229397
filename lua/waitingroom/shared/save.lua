-- Writes the room, and has all that belongs to it live on.
-- needs: now, room, base, ahead, last, late, front, turn, limit, state, whole, of, drawn, back, high
-- needs: lobby, quiet, entered, text, seed, keep

redis.call('HSET', room, 'base', whole(base), 'at', whole(now), 'ahead', whole(ahead), 'last', whole(last),
  'late', whole(late), 'front', whole(front), 'turn', whole(turn), 'limit', limit, 'state', state,
  'lobby', lobby, 'quiet', whole(quiet), 'entered', whole(entered), 'text', text, 'seed', seed,
  'opens', whole(of), 'draw', drawn and '1' or '0', 'back', whole(back), 'high', whole(high))
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, keep)
end
