// A management service of one DPU, as NVIDIA's DMS is: gnxi's servers of gNMI, and of gNOI's OS and certificates on one
// port with mutual TLS, beside device.go's reboots. A second port, without TLS, tells tests what happened and plans what
// goes wrong.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"reflect"
	"time"

	"github.com/google/gnxi/gnmi"
	gnxicert "github.com/google/gnxi/gnoi/cert"
	certpb "github.com/google/gnxi/gnoi/cert/pb"
	ospb "github.com/google/gnxi/gnoi/os/pb"
	gnmipb "github.com/openconfig/gnmi/proto/gnmi"
	syspb "github.com/openconfig/gnoi/system"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"dpuplane.io/tests/gnoi/dpu"
)

var (
	address = flag.String("address", "127.0.0.1:0", "address of gNMI and gNOI")
	control = flag.String("control", "127.0.0.1:0", "address of the tests' requests")
	cert    = flag.String("cert", "", "PEM file, read at each handshake; a rotation lasts until it is written again")
	key     = flag.String("key", "", "PEM file, read at each handshake")
	ca      = flag.String("ca", "", "PEM file: authority of clients")
	serial  = flag.String("serial", "", "serial number of the card")
	reboot  = flag.Duration("reboot", 200*time.Millisecond, "duration of a reboot")
	tls12   = flag.Bool("tls12", false, "speak no later version of TLS than 1.2")
)

func main() {
	flag.Parse()
	listener, err := net.Listen("tcp", *address)
	check(err)
	controller, err := net.Listen("tcp", *control)
	check(err)
	current, store := newDevice(*reboot), &certificates{}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(tlsConfig(store))))
	certpb.RegisterCertificateManagementServer(server, certService{gnxicert.NewServer(store), store})
	gnmipb.RegisterGNMIServer(server, settings())
	ospb.RegisterOSServer(server, osService{device: current})
	syspb.RegisterSystemServer(server, systemService{device: current})
	fmt.Printf("ready %s %s\n", listener.Addr(), controller.Addr())
	go func() { check(http.Serve(controller, handler(current, store))) }()
	check(server.Serve(listener))
}

// settings is gnxi's gNMI server with the tree of dpu.yang. A card is delivered in NIC mode.
func settings() *gnmi.Server {
	root := (*dpu.Device)(nil)
	model := gnmi.NewModel(nil, reflect.TypeOf(root), dpu.SchemaTree["Device"], dpu.Unmarshal, nil)
	config := map[string]any{
		"nvidia": map[string]any{"mode": map[string]any{"config": map[string]any{"mode": "NIC"}}},
		"components": map[string]any{"component": []any{
			map[string]any{"name": "card", "state": map[string]any{"name": "card", "serial-no": *serial}},
		}},
	}
	content, err := json.Marshal(config)
	check(err)
	server, err := gnmi.NewServer(model, content, nil)
	check(err)
	return server
}

func tlsConfig(store *certificates) *tls.Config {
	trusted, err := os.ReadFile(*ca)
	check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trusted)
	latest := uint16(tls.VersionTLS13)
	if *tls12 {
		latest = tls.VersionTLS12
	}
	return &tls.Config{
		MaxVersion: latest,
		ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs:  pool,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := store.current()
			return &pair, err
		},
	}
}

func handler(current *device, store *certificates) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		state := current.state()
		state.Rotated = store.kept()
		check(json.NewEncoder(w).Encode(state))
	})
	mux.HandleFunc("POST /plan/{outcome}", func(_ http.ResponseWriter, r *http.Request) {
		current.plan(r.PathValue("outcome"))
	})
	mux.HandleFunc("POST /rotation/{outcome}", func(_ http.ResponseWriter, r *http.Request) {
		store.plan(r.PathValue("outcome"))
	})
	mux.HandleFunc("POST /renew", func(http.ResponseWriter, *http.Request) { current.renew() })
	return mux
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
