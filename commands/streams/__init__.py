"""The Streams service: streams that last as long as their client follows them."""
