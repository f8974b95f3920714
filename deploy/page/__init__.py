"""The page on --http: its data and live feed as a process gives them, and in static/ what the browser runs."""
