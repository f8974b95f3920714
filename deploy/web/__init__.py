"""The responses of the HTTP listener (--http): metrics, health, and the page."""
