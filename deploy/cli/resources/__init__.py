"""Commands for objects, in the grammar of kubectl, and the manifests that they read."""
