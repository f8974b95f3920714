// A server that speaks Redis' protocol and keeps its content in memory, for the caches of Argo CD.
package main

import (
	"log"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr(os.Args[1]); err != nil {
		log.Fatal(err)
	}
	for range time.Tick(time.Second) {
		server.FastForward(time.Second) // keys expire by this clock only
	}
}
