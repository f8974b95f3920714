//go:build pinned

// Package pinned imports helm's command, so that `go mod tidy` keeps its module.
package pinned

import (
	_ "helm.sh/helm/v3/cmd/helm"
)
