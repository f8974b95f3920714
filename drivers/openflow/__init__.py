"""OpenFlow 1.4 as Open vSwitch speaks it: messages, the flows of a rule table, and a session with one bridge."""
