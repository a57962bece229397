package budget

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

// Row is what a node has used in a period.
type Row struct {
	Path   []string  `json:"path"` // a level of more than a kilobyte is '#' and its SHA-256
	Begins time.Time `json:"begins"`
	Ends   time.Time `json:"ends"`
	// Used is what was counted, and Restored what was used before, according to [Guard.Restore].
	Used     int64 `json:"used"`
	Restored int64 `json:"restored"`
	// First is when the count began. Another First means that Redis lost the count before it, and a bill adds
	// both. Sequence grows with every state of the row: the state with the greatest one is right. Both are
	// about the time in microseconds.
	First    int64 `json:"first"`
	Sequence int64 `json:"sequence"`
	// Final reports whether the period has ended by this process's clock. An attempt that has not been settled
	// may still change the row, which then comes again.
	Final bool `json:"final"`
}

// Exported is what the operation "export" returns: see [Guard.Export].
type Exported struct {
	Rows []Row `json:"rows"`
	Next int64 `json:"next"`
}

// exportPage is how many nodes one call of Export reads.
const exportPage = 100

// Export returns rows of the organisation of the path that have changed since an earlier call returned
// next; 0: all. Next stays as it was when there are no more. Rows may come twice: for each path and period,
// keep the row with the greatest Sequence.
func (g *Guard) Export(ctx context.Context, a core.Attempt, after int64) (rows []Row, next int64, err error) {
	next = after
	err = g.Call(ctx, "export", a, func() error {
		tag, _, _, err := g.nodeOf(a)
		if err != nil {
			return err
		}
		changed, err := script.Query(ctx, g.Engine().Runner, redis.NewZSliceCmd(ctx, "zrangebyscore",
			g.Key(tag, "rows"), "("+strconv.FormatInt(after, 10), "+inf", "withscores", "limit", 0, exportPage))
		if err != nil {
			return err
		}
		for _, z := range changed {
			name, _ := z.Member.(string)
			fields, err := script.Query(ctx, g.Engine().Runner,
				redis.NewMapStringStringCmd(ctx, "hgetall", g.Key(tag, keyFields("node", name)...)))
			if err != nil {
				return err
			}
			for field, value := range fields {
				if row, ok := rowOf(field, value); ok && row.Sequence > after {
					row.Path, row.Final = pathOf(name), !row.Ends.After(g.Engine().Now())
					rows = append(rows, row)
				}
			}
			next = int64(z.Score)
		}
		return nil
	})
	if err != nil {
		return nil, after, err
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), a.Begins.Compare(b.Begins))
	})
	return rows, next, nil
}

// Ended looks for periods of the organisation of the path that are over, and returns how many it has found.
// [Export] then gives their rows once more, as Final. The next attempt of a node does the same. Ended is
// for nodes that nobody uses any more. Call it before an export whose bill is to be complete. It reads all
// nodes of the organisation, 100 in a call.
func (g *Guard) Ended(ctx context.Context, a core.Attempt) (count int64, err error) {
	err = g.Call(ctx, "ended", a, func() error {
		tag, _, _, err := g.nodeOf(a)
		if err != nil {
			return err
		}
		root, rows := g.Key(tag, "root"), g.Key(tag, "rows")
		from, seen := "0", map[string]bool{} // nodes in use change while it runs, and come once more
		for {
			page, err := script.Query(ctx, g.Engine().Runner, redis.NewZSliceCmd(ctx, "zrangebyscore", rows, from,
				"+inf", "withscores", "limit", 0, exportPage))
			if err != nil || len(page) == 0 {
				return err
			}
			keys, args := []string{root, rows}, []any{g.Engine().ScriptNow(time.Microsecond)}
			for _, z := range page {
				name, _ := z.Member.(string)
				if seen[name] {
					continue
				}
				seen[name] = true
				keys, args = append(keys, g.Key(tag, keyFields("node", name)...)), append(args, name)
			}
			if len(args) == 1 {
				return nil
			}
			value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), endedScript, keys, args...)
			if err != nil {
				return err
			}
			n, err := script.ReadNumber(value)
			if err != nil {
				return err
			}
			count += n
			from = "(" + strconv.FormatFloat(page[len(page)-1].Score, 'f', 0, 64)
		}
	})
	return count, err
}

// keyFields returns the fields of the key of a node that has the name.
func keyFields(kind, name string) []string {
	fields := []string{kind}
	for _, level := range strings.Split(name, "|")[1:] {
		if !strings.HasPrefix(level, "#") {
			level = script.Encode(script.Decode(level))
		}
		fields = append(fields, level)
	}
	return fields
}

func rowOf(field, value string) (row Row, ok bool) {
	words := strings.Fields(value)
	switch {
	case field == "p" && len(words) == 7: // as check.lua writes it, with the alerts
		words = slices.Delete(words, 3, 4)
	case len(words) == 4:
		words = append(strings.Fields(field), words...)
	default:
		return row, false
	}
	n := make([]int64, len(words))
	for i, word := range words {
		n[i], _ = strconv.ParseInt(word, 10, 64)
	}
	return Row{Begins: time.UnixMilli(n[0]), Ends: time.UnixMilli(n[1]), Used: max(n[2]-n[5], 0), Sequence: n[3],
		First: n[4], Restored: n[5]}, true
}

// Restore adds the units that a node had used in the period of a moment before Redis's present count began,
// as a bill knows them after a loss of Redis. Decisions count them, and [Guard.Export] shows them
// separately. The same call again changes nothing. It returns the units that count in that period now.
func (g *Guard) Restore(
	ctx context.Context, a core.Attempt, moment time.Time, used int64, who, why string,
) (counts int64, err error) {
	err = g.Call(ctx, "restore", a, func() error {
		tag, names, path, err := g.nodeOf(a)
		switch {
		case err != nil:
			return err
		case who == "":
			return kit.NewError("say who decides this", core.ErrInvalid)
		case used < 0 || used > mostUnits:
			return fmt.Errorf("%w: %d units cannot have been used", core.ErrInvalid, used)
		}
		limits, err := g.options.Find(path)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(limits, func(l Limit) bool { return l.Period != nil })
		if at < 0 {
			return fmt.Errorf("%w: %q has no limit per period", core.ErrInvalid, path)
		}
		span, err := limits[at].Period.At(moment.UnixMilli())
		if err != nil {
			return fmt.Errorf("%w: %w", core.ErrInvalid, err)
		}
		name := script.JoinTag(names...)
		value, err := g.Engine().RunWithin(ctx, g.Engine().SettleTimeout(), restoreScript,
			[]string{g.Key(tag, "root"), g.Key(tag, "rows"), g.Key(tag, keyFields("node", name)...),
				g.Key(tag, "audit")},
			name, span.Begins, span.Ends, used, g.options.Keep.Milliseconds(), who, why,
			script.JoinTag("restore", g.Name(), script.EncodeUpTo(math.MaxInt, Path(path...))),
			moment.UnixMilli(), g.Engine().ScriptNow(time.Microsecond))
		if err != nil {
			return err
		}
		if counts, _ = value.(int64); counts < 0 {
			return fmt.Errorf("%w: the period of %s has not begun, or is not kept any more", core.ErrInvalid, moment)
		}
		return nil
	})
	return counts, err
}

// Difference is a node and period of which Redis has lost a count that a bill has.
type Difference struct {
	Path         []string
	Begins, Ends time.Time
	// Lost is the number of units used before Redis's present count, to be given to [Guard.Restore]. Restored
	// is the number already restored.
	Lost, Restored int64
}

// Compare finds the counts that Redis has lost of the path's organisation. It takes the rows that a bill
// has kept: from Export, the row with the greatest Sequence of each path, period and First. Periods that
// Redis does not keep any more are left out.
func (g *Guard) Compare(ctx context.Context, a core.Attempt, billed []Row) (all []Difference, err error) {
	now := map[periodOf]Row{}
	for after := int64(0); ; {
		rows, next, err := g.Export(ctx, a, after)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			now[row.period()] = row
		}
		if next == after {
			break
		}
		after = next
	}
	latest := map[periodOf]map[int64]Row{} // by First
	for _, row := range billed {
		counts := latest[row.period()]
		if counts == nil {
			counts = map[int64]Row{}
			latest[row.period()] = counts
		}
		if row.Sequence >= counts[row.First].Sequence {
			counts[row.First] = row
		}
	}
	for of, counts := range latest {
		var d Difference
		for first, row := range counts {
			d.Path, d.Begins, d.Ends = row.Path, row.Begins, row.Ends
			if d.Lost += row.Used; first == now[of].First { // of the count that goes on, less may be lost
				d.Lost -= min(row.Used, now[of].Used)
			}
		}
		d.Restored = now[of].Restored
		if d.Lost > d.Restored && d.Ends.Add(g.options.Keep).After(g.Engine().Now()) {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b Difference) int {
		return cmp.Or(slices.Compare(a.Path, b.Path), a.Begins.Compare(b.Begins))
	})
	return all, nil
}

// periodOf is a period of a node.
type periodOf struct {
	path         string
	begins, ends int64
}

func (r *Row) period() periodOf {
	return periodOf{Path(r.Path...), r.Begins.UnixMilli(), r.Ends.UnixMilli()}
}
