package kit

// HeldKey returns the copy of the key that a Recall holds.
func HeldKey[V any](r *Recall[string, V], key string) string {
	s := r.answers.Of(key)
	s.Lock()
	defer s.Unlock()
	for held := range s.All() {
		if held == key {
			return held
		}
	}
	return ""
}
