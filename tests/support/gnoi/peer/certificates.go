package main

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"os"
	"sync"

	gnxi "github.com/google/gnxi/gnoi/cert"
	certpb "github.com/google/gnxi/gnoi/cert/pb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const certID = "dms"

// certificates are those of a device, behind gnxi's server. gnxi's own store keeps one key forever; this one makes a
// key for each request, as the protocol says. A certificate that another program writes to the files replaces it.
type certificates struct {
	mu       sync.Mutex
	read     []byte // the content of the files
	served   tls.Certificate
	made     *rsa.PrivateKey
	rotating bool
	planned  string // outcome of the next rotation: refuse, keep (accepted, and not presented), mute, undo
	rotated  int    // certificates that were kept
}

func (c *certificates) plan(outcome string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.planned = outcome
}

// current is the certificate that new connections get.
func (c *certificates) current() (tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	certificate, err := os.ReadFile(*cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	private, err := os.ReadFile(*key)
	if err != nil {
		return tls.Certificate{}, err
	}
	content := append(certificate, private...)
	if !bytes.Equal(content, c.read) {
		pair, err := tls.X509KeyPair(certificate, private)
		if err != nil {
			return tls.Certificate{}, err
		}
		c.read, c.served = content, pair
	}
	return c.served, nil
}

func (c *certificates) kept() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rotated
}

func (c *certificates) Install(string, []byte, [][]byte) error {
	return errors.New("certificates cannot be added")
}

func (c *certificates) Revoke(ids []string) ([]string, map[string]string, error) {
	return nil, nil, errors.New("certificates cannot be revoked")
}

// GenCSR makes a key and a signing request for it.
func (c *certificates) GenCSR(subject pkix.Name) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rotating {
		return nil, errors.New("an operation is already in progress")
	}
	made, err := rsa.GenerateKey(rand.Reader, gnxi.RSABitSize)
	if err != nil {
		return nil, err
	}
	c.made = made
	template := &x509.CertificateRequest{Subject: subject, SignatureAlgorithm: x509.SHA256WithRSA}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, made)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// Rotate presents a certificate until the rotation is accepted or rolled back.
func (c *certificates) Rotate(id string, certificate []byte, _ [][]byte) (func(), func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rotating || c.made == nil || id != certID {
		return nil, nil, errors.New("an operation is already in progress, or the certificate does not exist")
	}
	if c.planned == "refuse" {
		c.planned = ""
		return nil, nil, errors.New("the certificate cannot be stored")
	}
	private := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(c.made)}
	pair, err := tls.X509KeyPair(certificate, pem.EncodeToMemory(private))
	if err != nil {
		return nil, nil, err
	}
	before := c.served
	c.rotating = true
	if c.planned != "keep" {
		c.served = pair
	}
	accept := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.rotating = false
		if c.planned == "undo" {
			c.served = before
			return
		}
		c.rotated++
	}
	back := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.rotating, c.served, c.planned = false, before, ""
	}
	return accept, back, nil
}

// GetCertInfo leaves its result to gnxi's store, whose fields no other package can set.
func (c *certificates) GetCertInfo() ([]*gnxi.Info, error) {
	pair, err := c.current()
	if err != nil {
		return nil, err
	}
	if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
		return nil, err
	}
	return gnxi.NewManager(&gnxi.Settings{CertID: certID, Cert: &pair}).GetCertInfo()
}

// rotation is the store as one stream has it. gnxi leaves a new certificate in place if the answer to it cannot be sent;
// this one rolls it back.
type rotation struct {
	*certificates
	back func()
}

func (r *rotation) Rotate(id string, certificate []byte, bundle [][]byte) (func(), func(), error) {
	accept, back, err := r.certificates.Rotate(id, certificate, bundle)
	if err == nil {
		r.back = sync.OnceFunc(back)
	}
	return accept, r.back, err
}

// certService is gnxi's server. A planned outcome of a rotation shows as the loss of its last answer.
type certService struct {
	*gnxi.Server
	store *certificates
}

func (s certService) Rotate(stream certpb.CertificateManagement_RotateServer) error {
	own := &rotation{certificates: s.store}
	if err := gnxi.NewServer(own).Rotate(stream); err != nil {
		if own.back != nil {
			own.back()
		}
		return err
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	outcome := s.store.planned
	s.store.planned = ""
	if outcome == "mute" || outcome == "undo" {
		return status.Error(codes.Unavailable, "the answer is lost")
	}
	return nil
}
