package edge

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-go/gatehouse/core"
	"github.com/gatehouse-go/gatehouse/internal/testkit/guardtest"
	"github.com/gatehouse-go/gatehouse/internal/testkit/redistest"
)

// netns is a network of the kernel that a test has for itself, with its own sets and its own loopback.
type netns struct {
	t     *testing.T
	enter []string // the command in front of one that runs in it
}

// startNetns makes one: as root, as a user who may have a namespace, or by sudo.
func startNetns(t *testing.T) *netns {
	t.Helper()
	redistest.Need(t, "nft", "ip", "curl", "unshare", "nsenter")
	var why []string
	for _, way := range []struct{ make, enter string }{
		{"unshare -n", "nsenter -n"},
		{"unshare -rn", "nsenter -U --preserve-credentials -n"},
		{"sudo -n unshare -n", "sudo -n nsenter -n"},
	} {
		pid, err := hold(t, strings.Fields(way.make))
		if err == nil {
			n := &netns{t, append(strings.Fields(way.enter), "-t", pid)}
			if _, err = n.try(redistest.Path("nft"), "list", "ruleset"); err == nil {
				return n
			}
		}
		why = append(why, fmt.Sprintf("%s: %v", way.make, err))
	}
	redistest.Lacks(t, "no network of its own for nft: "+strings.Join(why, "; "))
	return nil
}

// hold keeps a network until the test ends, and returns the process ID of who is in it.
func hold(t *testing.T, unshare []string) (pid string, err error) {
	t.Helper()
	words := append(slices.Clone(unshare), "sh", "-c", "echo $$; exec cat")
	holder := exec.CommandContext(t.Context(), words[0], words[1:]...)
	in, errIn := holder.StdinPipe() // when it closes, also because the test has died, the holder ends
	out, errOut := holder.StdoutPipe()
	if err := redistest.Spawn(holder); err != nil || errIn != nil || errOut != nil {
		return "", fmt.Errorf("%w, %w, %w", err, errIn, errOut)
	}
	t.Cleanup(func() { _ = in.Close(); _ = holder.Wait() })
	pid, err = bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(pid), err
}

// try runs a command in the network.
func (n *netns) try(words ...string) (out string, err error) {
	all := append(slices.Clone(n.enter), words...)
	output, err := exec.CommandContext(n.t.Context(), all[0], all[1:]...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, output)
	}
	return string(output), err
}

// run is try for a command that works.
func (n *netns) run(words ...string) string {
	n.t.Helper()
	out, err := n.try(words...)
	if err != nil {
		n.t.Fatalf("%q: %v", words, err)
	}
	return out
}

func (n *netns) nft(words ...string) string {
	n.t.Helper()
	return n.run(append([]string{redistest.Path("nft")}, words...)...)
}

// load loads a file of nft.
func (n *netns) load(file, text string) {
	n.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.nft("-f", file)
}

// addresses gives the loopback addresses, from which and to which clients may send.
func (n *netns) addresses(all ...string) {
	n.t.Helper()
	n.run(redistest.Path("ip"), "link", "set", "lo", "up")
	for _, addr := range all {
		n.run(redistest.Path("ip"), "addr", "add", addr, "dev", "lo")
	}
}

var element = regexp.MustCompile(`([0-9a-f.:/]+) timeout \S+ expires`)

// banned returns what is in a set now.
func (n *netns) banned(set string) map[string]bool {
	n.t.Helper()
	all := map[string]bool{}
	for _, found := range element.FindAllStringSubmatch(n.nft("list", "set", "inet", "gatehouse", set), -1) {
		all[found[1]] = true
	}
	return all
}

// isDropped reports whether the packets from an address are dropped. Else the port says that it is closed.
func (n *netns) isDropped(from string) bool {
	n.t.Helper()
	to := "http://198.18.0.1:9"
	if netip.MustParseAddr(from).Is6() {
		to = "http://[2001:db8:ffff::1]:9"
	}
	_, err := n.try("curl", "-gs", "--noproxy", "*", "-m", "3", "--interface", from, to)
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "exit status 7"):
		return false
	case err != nil && strings.HasPrefix(err.Error(), "exit status 28"):
		return true
	}
	n.t.Fatalf("from %s: %v", from, err)
	return false
}

// recipe is the recipe of the guide in this network, with its folder, and the file of the bans.
func (n *netns) recipe() (dir, file string, r recipe) {
	n.t.Helper()
	dir = n.t.TempDir()
	file = filepath.Join(dir, "banned")
	return dir, file, recipeFor(n.t, "nft", "text", "nft -f ",
		strings.Join(n.enter, " ")+" "+redistest.Path("nft")+" -f ", shownFile, file)
}

// TestNftShutsBotsOut: the recipe of docs/guides/bans-at-the-edge.md, with the nftables of this kernel.
//
// Promise: Behind `gatehouse bans -follow` nftables drops the packets of a client within a second of its last
// strike, and takes them within a second of the end of the ban.
func TestNftShutsBotsOut(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	n := startNetns(t)
	server := redistest.StartServer(t)
	s := startSite(t, server)
	dir, file, recipe := n.recipe()
	ban1(t, s.guard, "198.51.100.0/24", time.Hour) // before, since nft says something else of each file
	f := (&followed{t: t, file: file}).start(environOf(server), recipe.follows...)
	f.says("it is tried again\n", 1) // the table is not there yet
	n.load(filepath.Join(dir, "table"), recipe.conf)
	f.eventually(func() bool { return n.banned("banned4")["198.51.100.0/24"] }, "a ban of before the table")

	n.addresses("198.18.0.1", "203.0.113.7", "203.0.113.8", "198.51.100.9", "2001:db8:ffff::1", "2001:db8::5",
		"2001:db8:0:1::5")
	for actor, set := range map[string]string{"203.0.113.7": "banned4", "2001:db8::/64": "banned6"} {
		strike := func() {
			status, err := s.guard.Status(t.Context(), core.Attempt{Actor: actor})
			if err == nil && status.Left == 0 {
				_, err = s.guard.Strike(t.Context(), core.Attempt{Actor: actor})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		f.wantShutOut(s, actor, func() bool { strike(); return n.banned(set)[actor] },
			func() bool { return !n.banned(set)[actor] })
		ban1(t, s.guard, actor, time.Hour)
		f.eventually(func() bool { return n.banned(set)[actor] }, "a ban by hand")
	}
	for _, from := range []string{"203.0.113.7", "198.51.100.9", "2001:db8::5"} {
		if !n.isDropped(from) {
			t.Errorf("packets from %s are not dropped", from)
		}
	}
	arrive := func(from string) { // a curl that is held up says that they do not
		t.Helper()
		f.eventually(func() bool { return !n.isDropped(from) }, "packets from "+from+" arrive")
	}
	arrive("203.0.113.8")
	arrive("2001:db8:0:1::5")
	if code := f.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if all := len(n.banned("banned4")) + len(n.banned("banned6")); all != 0 {
		t.Errorf("%d bans are left after -clear", all)
	}
	arrive("203.0.113.7")
	f.says("it is tried again\n", 1)
}

// TestTheKernelEndsBansOfAKilledCommand, none of which a later file takes out.
func TestTheKernelEndsBansOfAKilledCommand(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	n := startNetns(t)
	server := redistest.StartServer(t)
	s := startSite(t, server)
	dir, file, recipe := n.recipe()
	n.load(filepath.Join(dir, "table"), recipe.conf)
	f := (&followed{t: t, file: file}).start(environOf(server), recipe.follows...)
	ban1(t, s.guard, "2001:db8::/64", time.Hour)
	f.eventually(func() bool {
		status, err := s.guard.Status(t.Context(), core.Attempt{Actor: "203.0.113.7"})
		if err != nil {
			t.Fatal(err)
		}
		if status.Left == 0 { // it may have ended before a busy machine has loaded it
			ban1(t, s.guard, "203.0.113.7", 2*time.Second)
		}
		return n.banned("banned4")["203.0.113.7"] && n.banned("banned6")["2001:db8::/64"]
	}, "both bans")
	f.end(syscall.SIGKILL)
	f.eventually(func() bool { return len(n.banned("banned4")) == 0 }, "the end of the short one")
	if !n.banned("banned6")["2001:db8::/64"] {
		t.Error("the long one has ended, too")
	}
}

// asPackets is the variable with which the test binary sends packets from two addresses to a third one, until its
// input ends, and prints how many of each arrived.
const asPackets = "GATEHOUSE_TEST_PACKETS"

// enough is after how many packets from the second address it says so.
const enough = 100

func sendPackets(from string) error {
	addrs := strings.Split(from, ",")
	conns := make([]net.PacketConn, len(addrs))
	for i, addr := range addrs {
		var err error
		if conns[i], err = new(net.ListenConfig).ListenPacket(context.Background(), "udp", addr+":0"); err != nil {
			return err
		}
	}
	ended := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(ended) }()
	to, arrived, packet := conns[2], map[string]int{}, make([]byte, 1)
	for running := true; running; {
		select {
		case <-ended:
			running = false
		default:
		}
		for _, conn := range conns[:2] { // the second one is let in, and its packet arrives after the first one's
			if _, err := conn.WriteTo(packet, to.LocalAddr()); err != nil {
				return err
			}
		}
		_ = to.SetReadDeadline(time.Now().Add(patience))
		for from := ""; from != addrs[1]; arrived[from]++ {
			_, addr, err := to.ReadFrom(packet)
			if err != nil {
				return err
			}
			from, _, _ = net.SplitHostPort(addr.String())
		}
		if arrived[addrs[1]] == enough {
			fmt.Println("enough")
		}
	}
	fmt.Println(arrived[addrs[0]], arrived[addrs[1]])
	return nil
}

// TestNftReplacesTheSetsAsAWhole: of whoever is in the file of before and in the new one, no packet passes while it
// is loaded. ("nft list set" and "nft get element" are no proof: those of 1.0.6 may see parts of both files then.)
func TestNftReplacesTheSetsAsAWhole(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	n := startNetns(t)
	n.addresses("198.18.0.1", "203.0.113.7", "203.0.113.8")
	dir := t.TempDir()
	n.load(filepath.Join(dir, "table"), recipeFor(t, "nft", "text").conf)
	const many = 1000
	now := time.Now()
	var files []string
	for i := range 2 {
		all := []ban{{actor: "203.0.113.7", ends: now.Add(time.Hour)}}
		for j := range many {
			all = append(all, ban{actor: fmt.Sprintf("10.%d.%d.%d", i, j>>8, j&255), ends: now.Add(time.Hour)})
		}
		files = append(files, filepath.Join(dir, fmt.Sprint(i)))
		n.load(files[i], formatNamed("nft").page(all, 2*many, now).text)
	}
	words := append(slices.Clone(n.enter), "env", asPackets+"=203.0.113.7,203.0.113.8,198.18.0.1", os.Args[0])
	packets := exec.CommandContext(t.Context(), words[0], words[1:]...)
	end, errIn := packets.StdinPipe()
	var said guardtest.Output
	packets.Stdout, packets.Stderr = &said, &said
	if err := errors.Join(errIn, redistest.Spawn(packets)); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 100 || !strings.Contains(said.String(), "enough"); i++ {
		n.nft("-f", files[i%2])
	}
	_ = end.Close()
	if err := packets.Wait(); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	var banned, others int
	if _, err := fmt.Sscanf(said.String(), "enough\n%d %d", &banned, &others); err != nil || banned > 0 {
		t.Errorf("packets that passed: %d of who is banned, %d of others: %v, %s", banned, others, err, &said)
	}
	t.Logf("%d packets of others passed", others)
	n.nft("-f", files[1])
	if all := n.banned("banned4"); len(all) != many+1 || all["10.0.0.0"] || !all["10.1.0.0"] {
		t.Errorf("%d are banned", len(all))
	}
}

// TestNftTakesWhatIsWritten: whatever actors there are, nft takes the file, and bans all whose addresses they
// are, and nobody else.
func TestNftTakesWhatIsWritten(t *testing.T) {
	redistest.LeftToCI(t)
	t.Parallel()
	n := startNetns(t)
	dir := t.TempDir()
	n.load(filepath.Join(dir, "table"), recipeFor(t, "nft", "text").conf)
	file := filepath.Join(dir, "banned")
	now := time.Now()
	want := func(actors []string, length time.Duration) {
		t.Helper()
		var all []ban
		for _, actor := range actors {
			all = append(all, ban{actor: actor, ends: now.Add(length)})
		}
		p := formatNamed("nft").page(all, len(all)+1, now)
		n.load(file, p.text)
		n.nft("-c", "-f", file)
		written, in := inPage(t, formatNamed("nft"), p.text), n.banned("banned4")
		maps.Copy(in, n.banned("banned6"))
		if !maps.Equal(in, written) {
			t.Fatalf("the sets have %v, want %v, of\n%s", in, written, p.text)
		}
		for _, actor := range actors { // what is left out lies in what is not
			one, ok := network(actor)
			if ok && !slices.ContainsFunc(slices.Collect(maps.Keys(in)), func(text string) bool {
				other, _ := network(text)
				return other.network.Bits() <= one.network.Bits() && other.network.Contains(one.network.Addr())
			}) {
				t.Fatalf("%s is not banned by\n%s", actor, p.text)
			}
		}
	}
	want(nil, time.Hour)
	want(append(append([]string{}, evil...), good...), time.Hour)
	want(good, 366*24*time.Hour) // the longest ban
	want(nil, time.Hour)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		var actors []string
		for range random.IntN(60) { // of few addresses, so that many overlap or are neighbours
			addr, bits := netip.AddrFrom4([4]byte{10, 0, byte(random.IntN(4)), byte(random.IntN(256))}), 8
			if random.IntN(2) == 0 {
				addr = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 4: byte(random.IntN(4)), 15: byte(random.IntN(4))})
				bits = 32
			}
			bits += random.IntN(addr.BitLen() - bits + 1)
			actor := netip.PrefixFrom(addr, bits).Masked().String()
			if bits == addr.BitLen() {
				actor = addr.String()
			}
			actors = append(actors, actor)
		}
		want(actors, time.Minute)
	}
}
