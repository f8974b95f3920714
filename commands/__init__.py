"""What comes in. The edge checks shapes and states; it never decides."""
