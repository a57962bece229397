-- Splits the calls of a stored answer. Needs stored, the answer or a tombstone. Gives calls, those that
-- received a yes and have not ended, or ' *', and marks, those that were undone; each has a space before it.

local words = string.sub(stored, string.sub(stored, 1, 1) == '|' and 2 or 22)
local calls, marks = string.gsub(words, ' %-%S+', ''), string.gsub(words, ' [^-]%S*', '')
