"""What --http serves: metrics, health, and the page."""
