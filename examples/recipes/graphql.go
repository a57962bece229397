package recipes

import (
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"text/scanner"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/core/limit"
	"github.com/gatehouse-go/gatehouse/keyfuncs"
	ratelimit "github.com/gatehouse-go/gatehouse/nethttpmw"
)

// mostOfAQuery is the highest cost of one query.
const mostOfAQuery = 1000

// GraphQL gives each user 10,000 points a minute, of which a query costs what it asks for: one point per
// field, times the "first" or "last" of each list around it. A query of more than 1,000 points gets 400, and
// so does a request that the server might read in another way than the rule: only a JSON body has a query.
func GraphQL(gate *core.Engine, server http.Handler) http.Handler {
	points := ratelimit.Rule{
		Guard: limit.NewSlidingWindow(gate, "graphql", limit.PerMinute(10_000)),
		Who:   keyfuncs.User("uid"),
		Cost:  queryCost,
	}
	return ratelimit.HTTP(points)(server)
}

// query reads at most 8 KiB of the body.
var query = keyfuncs.JSON(8<<10, "query")

func queryCost(r *keyfuncs.Request) (int64, error) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case r.Method != http.MethodPost || err != nil || media != "application/json":
		return 0, errors.New("send the query by POST, as application/json")
	case r.URL.RawQuery != "": // servers prefer its query to that of the body
		return 0, errors.New("the query belongs into the body, not into the URL")
	}
	text, err := query(r)
	if err != nil {
		return 0, err
	}
	return costOf(text)
}

// costOf reads a query once, from the left. It knows no schema. It refuses fragments, with which a short
// query can ask for very much, and block strings.
func costOf(text string) (int64, error) {
	c := counter{times: []int64{1}, next: 1}
	c.s.Init(strings.NewReader(text))
	c.s.Mode = scanner.ScanIdents | scanner.ScanInts | scanner.ScanStrings
	c.s.Error = func(*scanner.Scanner, string) {} // the server refuses what is no GraphQL
	for token := c.s.Scan(); token != scanner.EOF; token = c.s.Scan() {
		switch word := c.s.TokenText(); {
		case word == "fragment" || token == '.':
			return 0, errors.New("fragments are not supported")
		case word == `""` && c.s.Peek() == '"':
			return 0, errors.New("block strings are not supported")
		case c.inside > 0 || token == '(':
			c.argument(token, word)
		default:
			c.selection(token)
		}
		if c.cost > mostOfAQuery {
			return 0, errors.New("the query asks for too much")
		}
	}
	return max(c.cost, 1), nil
}

// counter counts the fields of a query.
type counter struct {
	s      scanner.Scanner
	cost   int64
	times  []int64 // how often the fields of each selection around are asked for
	next   int64   // how often those of the next selection are, by the arguments in front of it
	inside int     // how many parentheses are open
	name   string  // the last argument
}

// selection counts a token outside of arguments.
func (c *counter) selection(token rune) {
	around := c.times[len(c.times)-1]
	switch token {
	case '#':
		c.skipComment()
	case '@':
		c.s.Scan() // the name of a directive is no field
	case '{':
		c.times, c.next = append(c.times, min(around*c.next, mostOfAQuery+1)), 1
	case '}':
		c.times, c.next = c.times[:max(1, len(c.times)-1)], 1
	case scanner.Ident:
		if c.next = 1; len(c.times) > 1 {
			c.cost += around
		}
	}
}

// argument reads a token of arguments, and what "first: 50" says about the next selection.
func (c *counter) argument(token rune, word string) {
	switch token {
	case '#':
		c.skipComment()
	case '(':
		c.inside++
	case ')':
		c.inside--
	case '$':
		c.s.Scan() // the name of a variable is no argument
		c.name = ""
	case scanner.Ident:
		c.name = word
	case ':':
		if c.name == "first" || c.name == "last" {
			c.next = max(c.next, c.amount())
		}
		c.name = ""
	}
}

// amount reads the value of an argument. One that is no number, such as a variable, counts as the most.
func (c *counter) amount() int64 {
	if c.s.Scan(); c.s.TokenText() == "$" {
		c.s.Scan()
	}
	n, err := strconv.ParseInt(c.s.TokenText(), 10, 64)
	if err != nil || n < 1 || n > mostOfAQuery {
		return mostOfAQuery
	}
	return n
}

// skipComment skips a comment, which ends with its line.
func (c *counter) skipComment() {
	for next := c.s.Next(); next != '\n' && next != '\r' && next != scanner.EOF; {
		next = c.s.Next()
	}
}
