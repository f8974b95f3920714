"""The control planes of DPU clusters that the plane makes: objects for Kamaji and keepalived."""
