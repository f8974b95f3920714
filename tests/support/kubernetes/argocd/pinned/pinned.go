//go:build pinned

// Package pinned imports Argo CD's command, so that `go mod tidy` keeps its module.
package pinned

import (
	_ "github.com/argoproj/argo-cd/v3/cmd"
)
