-- Says until when the keys of a part are kept. Needs now, closes, keep; and ended, until when they have been
-- kept, which it changes. Gives due, whether that has changed.

-- All keys expire at the same time. In a poll without a closing time every vote moves that time; it is set a
-- little later than needed, so that most votes need not set it again.
local due = math.max(now, closes) + keep > ended
if due then
  ended = math.max(now, closes) + keep
  if now >= closes then
    ended = ended + math.floor(keep / 64)
  end
end
