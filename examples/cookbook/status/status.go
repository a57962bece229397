// Package status posts short messages and counts them, both in one call. It is a recipe of the cookbook: see
// README.md in the folder above.
package status

import (
	"context"
	_ "embed" // for the scripts
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/kit"
	"github.com/gatehouse-go/gatehouse/core/script"
)

const (
	// MaxText is how many bytes a message has at most.
	MaxText = 4096
	// MaxRead is how many messages Newest returns at most.
	MaxRead = 100
	// Replay is how long the answer to an operation is kept. Within this time, a retry with the same ID posts
	// nothing and gets the same answer.
	Replay = 24 * time.Hour
)

var (
	//go:embed sign_up.lua
	signUpSource string
	//go:embed post.lua
	postSource string

	signUpScript = script.New("status_sign_up", signUpSource, script.Idempotent)
	postScript   = script.New("status_post", postSource, script.Idempotent)

	// ErrNoUser says that the user has not signed up, or has not posted for longer than posts are kept.
	ErrNoUser = kit.NewError("status: no such user", core.ErrNotFound)
	// ErrConflict says that the same user has posted another message under the same operation ID.
	ErrConflict = kit.NewError("status: the operation ID belongs to another message", core.ErrNotNow)
)

// Board has the messages of all users, each user's in one slot. It is safe for concurrent use.
type Board struct {
	gate *core.Engine
	most int
	keep time.Duration
}

// New returns a board that keeps the newest messages of each user, at most the given number. What belongs to
// a user is kept for the duration keep after the latest message. New panics if the engine has no Redis, if
// most is less than 1, or if keep is not from 1 s to kit.MaxTTL.
func New(gate *core.Engine, most int, keep time.Duration) *Board {
	kit.NeedRedis(gate, "status", "board")
	if most < 1 || keep < time.Second || keep > kit.MaxTTL {
		panic(fmt.Sprintf("status: %d messages for %v: give 1 or more, for 1 s to %v", most, keep, kit.MaxTTL))
	}
	return &Board{gate, most, keep}
}

// Posted is the answer to a post.
type Posted struct {
	ID       string // of the message; the IDs of a user grow
	Posts    int64  // how many messages the user has posted, including this one and those no longer kept
	Replayed bool   // the operation had posted the message before
}

// Message is one message of a user.
type Message struct{ ID, Text string }

// All keys of a user have the user as their tag, so that one script may touch them on a cluster.
func (b *Board) profile(user string) string { return b.gate.Key("status", user, "profile") }
func (b *Board) feed(user string) string    { return b.gate.Key("status", user, "feed") }
func (b *Board) op(user, id string) string  { return b.gate.Key("status", user, "op", id) }

// SignUp creates a user. It changes nothing for a user who exists, except that the profile is kept for
// longer.
func (b *Board) SignUp(ctx context.Context, user string) error {
	if user == "" {
		return fmt.Errorf("status: %w: no user", core.ErrInvalid)
	}
	_, err := b.gate.Run(ctx, signUpScript, []string{b.profile(user)}, b.keep.Milliseconds())
	return err
}

// Post posts a message of 1 to MaxText bytes under an operation ID that the client chose. After an error,
// call it again with the same ID: the message is posted once. The error is ErrNoUser, ErrConflict, or
// wraps core.ErrInvalid; any other means that the message may have been posted or not.
func (b *Board) Post(ctx context.Context, user, id, text string) (Posted, error) {
	if user == "" || id == "" || text == "" || len(text) > MaxText {
		return Posted{}, fmt.Errorf("status: %w: need a user, an ID and a text of %d bytes at most",
			core.ErrInvalid, MaxText)
	}
	value, err := b.gate.Run(ctx, postScript, []string{b.profile(user), b.feed(user), b.op(user, id)},
		text, script.Encode(text), b.most, b.keep.Milliseconds(), Replay.Milliseconds())
	if err != nil {
		return Posted{}, err
	}
	r := script.ReadReply(value, 3, 3)
	reason, posted := r.Text(), Posted{ID: r.Text(), Posts: r.Number()}
	switch {
	case r.Err != nil:
		return Posted{}, r.Err
	case reason == "unknown":
		return Posted{}, ErrNoUser
	case reason == "conflict":
		return Posted{}, ErrConflict
	}
	posted.Replayed = reason == "replayed"
	return posted, nil
}

// Newest returns how many messages a user has posted, and the newest n of those that are kept, but MaxRead at
// most, the newest first. The error is ErrNoUser or comes from Redis.
func (b *Board) Newest(ctx context.Context, user string, n int) (posts int64, newest []Message, err error) {
	if user == "" {
		return 0, nil, ErrNoUser
	}
	count := redis.NewCmd(ctx, "hget", b.profile(user), "posts")
	if _, err := script.Query(ctx, b.gate.Runner, count); errors.Is(err, redis.Nil) {
		return 0, nil, ErrNoUser
	} else if err != nil {
		return 0, nil, err
	}
	if posts, err = count.Int64(); err != nil {
		return 0, nil, fmt.Errorf("status: count of posts: %w", err)
	}
	entries, err := script.Query(ctx, b.gate.Runner, redis.NewXMessageSliceCmd(ctx,
		"xrevrange", b.feed(user), "+", "-", "count", min(max(n, 1), MaxRead)))
	if err != nil {
		return 0, nil, err
	}
	newest = make([]Message, 0, len(entries))
	for _, entry := range entries {
		text, _ := entry.Values["text"].(string)
		newest = append(newest, Message{entry.ID, text})
	}
	return posts, newest, nil
}
