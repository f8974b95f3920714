// Nothing is compiled; cargo refuses a package without a target.
