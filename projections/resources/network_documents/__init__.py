"""The network document of a DPU: its interfaces, and the switches of chains that connect them."""
