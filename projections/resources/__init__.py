"""The fold of resources: objects of custom resources as their users want them."""
