//go:build pinned

// Package pinned imports kwok's command, so that `go mod tidy` keeps its module.
package pinned

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
