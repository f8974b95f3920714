"""What goes out: forwarding, timers, relays, agents, provisioners. They act on what the folds say."""
