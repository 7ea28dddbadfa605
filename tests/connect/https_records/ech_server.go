// A TLS server that reads encrypted hellos (ECH), which rustls does not: it prints its port, and the keys as hexadecimal lists, the ones
// that it takes and others. It tells each client what it saw. It ends with its standard input.
package main

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
)

// Makes a key for public.test: X25519, HKDF-SHA256, AES-128-GCM (RFC 9849, section 4).
func newKey(id byte) tls.EncryptedClientHelloKey {
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	public := private.PublicKey().Bytes()
	contents := append([]byte{id, 0, 0x20, 0, byte(len(public))}, public...)
	contents = append(contents, 0, 4, 0, 1, 0, 1, 32, 11)
	contents = append(contents, "public.test"...)
	contents = append(contents, 0, 0)
	config := append([]byte{0xfe, 0x0d, 0, byte(len(contents))}, contents...)
	return tls.EncryptedClientHelloKey{Config: config, PrivateKey: private.Bytes(), SendAsRetry: true}
}

func list(key tls.EncryptedClientHelloKey) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(key.Config))), key.Config...)
}

// A connection that keeps what was read from it.
type recorded struct {
	net.Conn
	seen []byte
}

func (c *recorded) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.seen = append(c.seen, b[:n]...)
	return n, err
}

func serve(conn net.Conn, config *tls.Config) {
	defer conn.Close()
	raw := &recorded{Conn: conn}
	secure := tls.Server(raw, config)
	if secure.Handshake() != nil {
		return
	}
	head := make([]byte, 0, 4096)
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		one := make([]byte, 1)
		if _, err := secure.Read(one); err != nil {
			return
		}
		head = append(head, one...)
	}
	state := secure.ConnectionState()
	shown := bytes.Contains(raw.seen, []byte("secret.test"))
	text := fmt.Sprintf("name %s, encrypted %t, shown %t", state.ServerName, state.ECHAccepted, shown)
	fmt.Fprintf(secure, "HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s", len(text), text)
	secure.Close()
}

func main() {
	certificate, err := tls.LoadX509KeyPair(os.Args[1], os.Args[2])
	if err != nil {
		panic(err)
	}
	own := newKey(1)
	config := &tls.Config{
		Certificates:             []tls.Certificate{certificate},
		EncryptedClientHelloKeys: []tls.EncryptedClientHelloKey{own},
		NextProtos:               []string{"http/1.1"},
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d %x %x\n", listener.Addr().(*net.TCPAddr).Port, list(own), list(newKey(2)))
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go serve(conn, config)
	}
}
