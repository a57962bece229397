package core

// HeldKey returns the key that a Recall holds in the place of the given one.
func HeldKey[V any](r *Recall[string, V], key string) string {
	s := r.answers.Of(key)
	s.Lock()
	defer s.Unlock()
	for _, held := range s.Keys() {
		if held == key {
			return held
		}
	}
	return ""
}
