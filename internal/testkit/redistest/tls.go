package redistest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"testing"
	"time"
)

const tlsName = "redistest"

// overTLS returns a Dialer whose connections are by TLS, which ends right behind the client: what dial
// returns is the way on to the server. When the server closes its end, the client's is closed as TLS servers
// do.
func (f *Faults) overTLS(
	t testing.TB, dial func(ctx context.Context, network, addr string) (net.Conn, error),
) func(ctx context.Context, network, addr string) (net.Conn, error) {
	t.Helper()
	certificate, roots, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		onward, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		outer, inner, err := f.pair()
		if err != nil {
			return nil, errors.Join(err, onward.Close())
		}
		server := tls.Server(inner, &tls.Config{Certificates: []tls.Certificate{certificate}})
		go pass(onward, server)
		go pass(server, onward)
		client := tls.Client(outer, &tls.Config{RootCAs: roots, ServerName: tlsName})
		if err := client.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, outer.Close())
		}
		return client, nil
	}
}

// pass copies until one of them ends, and then closes both.
func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from) // how it ended does not matter
	_ = to.Close()
	_ = from.Close()
}

// selfSigned makes a certificate, and the roots that know it.
func selfSigned() (tls.Certificate, *x509.CertPool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{tlsName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	text, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	parsed, err := x509.ParseCertificate(text)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{text}, PrivateKey: key}, roots, nil
}
