package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// Migration is a slot that moves from one master to another, so that a test can act in the middle. From
// serves keys that have not moved yet. To serves moved and new keys after an ASK redirection. A script
// whose keys are on both fails with TRYAGAIN.
type Migration struct {
	Slot     int
	From, To *Server

	t       testing.TB
	cluster *ClusterServers
}

// MigrateSlot moves the slot with all its keys from one master to another, live.
func (c *ClusterServers) MigrateSlot(t testing.TB, slot int, from, to *Server) {
	t.Helper()
	c.BeginMigration(t, slot, from, to).Finish()
}

// BeginMigration opens the migration of a slot and moves nothing yet. The migration stays open until
// [Migration.Finish].
func (c *ClusterServers) BeginMigration(t testing.TB, slot int, from, to *Server) *Migration {
	t.Helper()
	m := &Migration{Slot: slot, From: from, To: to, t: t, cluster: c}
	m.do(to, "cluster", "setslot", slot, "importing", m.id(from))
	m.do(from, "cluster", "setslot", slot, "migrating", m.id(to))
	return m
}

// MigrateSlotAtomically moves the slot with all its keys from one master to another as Valkey 9 does: the
// keys are copied while from serves them, and the slot changes its master at one moment. It reports false,
// and does nothing, where the servers cannot do so. It returns when every running node knows.
func (c *ClusterServers) MigrateSlotAtomically(t testing.TB, slot int, from, to *Server) bool {
	t.Helper()
	info, err := from.p.admin.Do(t.Context(), "command", "info", "cluster|migrateslots").Slice()
	if err != nil {
		t.Fatalf("redistest: COMMAND INFO on %s: %v", from.Addr(), err)
	}
	if info[0] == nil {
		return false
	}
	m := &Migration{Slot: slot, From: from, To: to, t: t, cluster: c}
	m.do(from, "cluster", "migrateslots", "slotsrange", slot, slot, "node", m.id(to))
	m.await()
	return true
}

// MoveKeys moves at most n keys and returns how many it moved.
func (m *Migration) MoveKeys(n int) int {
	m.t.Helper()
	keys, err := m.From.p.admin.ClusterGetKeysInSlot(m.t.Context(), m.Slot, n).Result()
	if err != nil {
		m.t.Fatalf("redistest: keys of slot %d: %v", m.Slot, err)
	}
	if len(keys) == 0 {
		return 0
	}
	args := []any{"migrate", "127.0.0.1", m.To.p.port, "", 0, 5000, "keys"}
	for _, key := range keys {
		args = append(args, key)
	}
	m.do(m.From, args...)
	return len(keys)
}

// Finish moves the remaining keys and gives the slot to To. It returns when every running node knows.
func (m *Migration) Finish() {
	m.t.Helper()
	for m.MoveKeys(100) > 0 {
	}
	id := m.id(m.To)
	m.do(m.To, "cluster", "setslot", m.Slot, "node", id)
	m.do(m.From, "cluster", "setslot", m.Slot, "node", id)
	m.await()
}

// await returns when every running node knows that To has the slot.
func (m *Migration) await() {
	m.t.Helper()
	Eventually(m.t, startTimeout, func() bool {
		for _, n := range m.cluster.Nodes {
			if n.Running() && n.masterOfSlot(m.Slot) != m.To.Addr() {
				return false
			}
		}
		return true
	}, "every node knows about the migration")
}

func (m *Migration) id(s *Server) string {
	m.t.Helper()
	id, err := s.p.admin.Do(m.t.Context(), "cluster", "myid").Text()
	if err != nil {
		m.t.Fatalf("redistest: CLUSTER MYID of %s: %v", s.Addr(), err)
	}
	return id
}

func (m *Migration) do(s *Server, args ...any) {
	m.t.Helper()
	cmd := redis.NewCmd(m.t.Context(), args...)
	if err := s.p.admin.Process(m.t.Context(), cmd); err != nil {
		m.t.Fatalf("redistest: on %s: %v", s.Addr(), err)
	}
}
