"""The page on --http: its data and live feed, and in static/ the files for the browser."""
